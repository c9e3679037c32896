"""What Ctrl-C does during a run, and SIGTERM, as cluster managers send it.

Python raises `KeyboardInterrupt` wherever the main thread happens to be. Inside XLA's
compiler it is swallowed, or ends in a segmentation fault; while a network is saved, it
leaves half a run. So nothing is raised during a run. A thread of its own notices the
presses at once, whatever the main thread is doing, and acts by what there is to lose.
"""

import enum
import os
import signal
import socket
import sys
import threading
from pathlib import Path
from types import TracebackType
from typing import final, Protocol

from .display import AbstractDisplay
from .usage import tell


INTERRUPTED = 130
"""The exit code that shells give to what Ctrl-C has ended."""


class Stage(enum.Enum):
    """What there is to lose."""

    NOTHING_TRAINED = enum.auto()
    TRAINING = enum.auto()
    SAVING = enum.auto()


class Folder(Protocol):
    """What a run is written to."""

    @property
    def path(self) -> Path:
        """Where it is."""
        ...

    @property
    def has_network(self) -> bool:
        """Whether there is a network in it."""
        ...

    def discard(self) -> None:
        """Takes it away again."""
        ...


@final
class Interrupts:
    """A context in which Ctrl-C is

    - the end, while nothing is trained: the folder goes and so does the process;
    - a request, while training; a second one ends the process and leaves the metrics;
    - patient, while what was trained is being saved.

    - `lock`: while it is held, a press waits. Needed to change what is below, and to
      write to the folder.
    - `folder`: the run folder, once there is one.
    - `stage`: where the run is.
    - `requested`: whether there was a press that the process has survived.
    """

    folder: Folder | None
    stage: Stage
    requested: bool

    def __init__(self, display: AbstractDisplay):
        """Notices nothing yet.

        **Arguments:**

        - `display`: says what a press does, and is stopped before the process ends.
        """
        self.lock = threading.Lock()
        self.folder = None
        self.stage = Stage.NOTHING_TRAINED
        self.requested = False
        self._display = display
        self._thread: threading.Thread | None = None

    def __enter__(self) -> "Interrupts":
        heeded = [
            number
            for number in (signal.SIGINT, signal.SIGTERM)
            if signal.getsignal(number) is not signal.SIG_IGN
        ]
        in_main_thread = threading.current_thread() is threading.main_thread()
        if in_main_thread and heeded:
            self._reader, self._writer = socket.socketpair()
            self._writer.setblocking(False)
            self._old_handlers = {
                number: signal.signal(number, _do_nothing) for number in heeded
            }
            self._old_descriptor = signal.set_wakeup_fd(
                self._writer.fileno(), warn_on_full_buffer=False
            )
            self._thread = threading.Thread(target=self._watch, daemon=True)
            self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Gives Ctrl-C back; what was pressed before has been noticed by then."""
        if self._thread is not None:
            signal.set_wakeup_fd(self._old_descriptor)
            for number, handler in self._old_handlers.items():
                signal.signal(number, handler)
            self._writer.close()
            self._thread.join()
            self._reader.close()

    def go_on(self, step: int, *, whole_budget: int) -> None:
        """Notes an iteration, with `lock` held, and asks for the end on request.

        **Arguments:**

        - `step`: environment steps so far.
        - `whole_budget`: of them, after which training ends by itself.

        **Raises:**

        `KeyboardInterrupt` where a stop was asked for. Training heeds it when all
        metrics of the compiled call are told.
        """
        if step >= whole_budget:
            self.stage = Stage.SAVING
        elif step:
            self.stage = Stage.TRAINING
            if self.requested:
                raise KeyboardInterrupt

    def _watch(self) -> None:
        while caught := self._reader.recv(1):
            if caught[0] in self._old_handlers:
                with self.lock:
                    self._react()

    def _react(self) -> None:
        if self.stage is Stage.NOTHING_TRAINED:
            self._quit("interrupted before anything was trained; nothing was kept")
        elif self.stage is Stage.TRAINING and self.requested:
            kept = self.folder is not None and self.folder.has_network
            network = "the last checkpoint" if kept else "but no network"
            self._quit(f"interrupted; {{}} keeps the metrics, {network}")
        elif not self.requested:
            self.requested = True
            self._display.say(
                "stopping after this chunk; Ctrl-C again quits at once"
                if self.stage is Stage.TRAINING
                else "saving, then stopping"
            )

    def _quit(self, message: str) -> None:
        """Ends the process without unwinding the main thread, which is inside XLA."""
        try:
            self._display.stop()
            if self.folder is not None:
                if self.stage is Stage.NOTHING_TRAINED:
                    self.folder.discard()
                message = message.format(self.folder.path)
            tell(message)
            sys.stdout.flush()
        finally:
            os._exit(INTERRUPTED)


def _do_nothing(*_: object) -> None:
    """A handler is what keeps Python from raising; the thread does the rest."""
