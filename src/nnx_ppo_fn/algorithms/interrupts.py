"""Lets Ctrl-C wait until a compiled call has returned."""

import signal
import threading
from types import FrameType, TracebackType
from typing import Any, final


@final
class DeferredInterrupt:
    """A context in which the first Ctrl-C is a request, and the second one the end.

    Python raises `KeyboardInterrupt` wherever the main thread is. Inside JAX it may be
    swallowed, or come between the donation of a state and the arrival of the next,
    with both of them lost. Only Python's own handler is replaced, and only in the main
    thread: whoever has installed another one has plans of his own.

    - `requested`: whether Ctrl-C was pressed.
    """

    requested: bool

    def __init__(self):
        """Nothing is requested yet."""
        self.requested = False
        self._replaced: Any = None

    def __enter__(self) -> "DeferredInterrupt":
        in_main_thread = threading.current_thread() is threading.main_thread()
        if in_main_thread and signal.getsignal(signal.SIGINT) is _PYTHONS_OWN:
            self._replaced = signal.signal(signal.SIGINT, self._request)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._replaced is not None:
            signal.signal(signal.SIGINT, self._replaced)

    def raise_if_requested(self) -> None:
        """Raises `KeyboardInterrupt` here, where nothing is under way."""
        if self.requested:
            raise KeyboardInterrupt

    def _request(self, number: int, frame: FrameType | None) -> None:
        if self.requested:
            raise KeyboardInterrupt
        self.requested = True


_PYTHONS_OWN = signal.default_int_handler
