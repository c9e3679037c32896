"""What a person sees while a policy trains."""

import abc
import os
import sys
from pathlib import Path
from typing import Any, final

from ..algorithms.types import Metrics
from .progress import EVALUATION, Progress
from .usage import finish_output, in_words


class AbstractDisplay(abc.ABC):
    """Shows a run. After `start`, `stop` must be called, whatever happens."""

    @property
    @abc.abstractmethod
    def problem(self) -> str:
        """Why nothing can be shown any longer; nothing as long as it can."""

    @abc.abstractmethod
    def start(self) -> None:
        """Shows that the run has begun, and compiles."""

    @abc.abstractmethod
    def say(self, text: str) -> None:
        """Prints something that stays, above whatever moves."""

    @abc.abstractmethod
    def update(self, metrics: Metrics, step: int) -> None:
        """Shows an iteration.

        **Arguments:**

        - `metrics`: numbers by name, rewards in the environment's own unit.
        - `step`: environment steps so far.
        """

    @abc.abstractmethod
    def stop(self) -> None:
        """Leaves the last state on the screen."""

    @abc.abstractmethod
    def conclude(self, path: Path) -> None:
        """Says where the run folder is."""


@final
class Printer:
    """Prints lines at once, also into a pipe, and goes quiet if nobody can read them.

    - `problem`: why it is quiet.
    """

    problem: str

    def __init__(self):
        """Can print, as far as it knows."""
        self.problem = ""

    def __call__(self, text: str) -> None:
        """Prints a line."""
        if self.problem:
            return
        try:
            print(text, flush=True)
        except OSError as error:
            self.problem = in_words(error)
            finish_output()


def new_display(
    *, quiet: bool, total_steps: int, replay_tolerance: float
) -> AbstractDisplay:
    """The display that suits the standard output.

    **Arguments:**

    - `quiet`: whether to show nothing.
    - `total_steps`, `replay_tolerance`: as for `Progress`.
    """
    if quiet:
        return Silence()
    progress = Progress(total_steps, replay_tolerance)
    if sys.stdout.isatty() and os.environ.get("TERM") != "dumb":
        return Live(progress)
    return Lines(progress)


@final
class Silence(AbstractDisplay):
    """Shows nothing, and at the end the run folder alone."""

    def __init__(self):
        self._print = Printer()

    @property
    def problem(self) -> str:
        """Why nothing can be printed."""
        return self._print.problem

    def start(self) -> None:
        """Nothing."""

    def say(self, text: str) -> None:
        """Nothing."""

    def update(self, metrics: Metrics, step: int) -> None:
        """Nothing."""

    def stop(self) -> None:
        """Nothing."""

    def conclude(self, path: Path) -> None:
        """Prints the folder."""
        self._print(str(path))


@final
class Lines(AbstractDisplay):
    """A plain line at every evaluation, for pipes and log files."""

    def __init__(self, progress: Progress):
        self._progress = progress
        self._print = Printer()

    @property
    def problem(self) -> str:
        """Why nothing can be printed."""
        return self._print.problem

    def start(self) -> None:
        """Says why nothing happens for a while."""
        self.say("compiling ...")

    def say(self, text: str) -> None:
        """Prints at once."""
        self._print(text)

    def update(self, metrics: Metrics, step: int) -> None:
        """A line, if this iteration was evaluated."""
        self._progress.update(metrics, step)
        if EVALUATION in metrics:
            numbers = [f"{name} {x}" for name, x in self._progress.numbers.items()]
            parts = [self._progress.fraction, *numbers, self._progress.pace]
            self.say(" | ".join(part for part in parts if part))

    def stop(self) -> None:
        """Nothing moves."""

    def conclude(self, path: Path) -> None:
        """Prints the folder below what was said before."""
        self.say(_concluding(path))


@final
class Live(AbstractDisplay):
    """A progress bar and the latest numbers, drawn in place."""

    def __init__(self, progress: Progress):
        from rich import progress as bars
        from rich.console import Console
        from rich.live import Live as RichLive

        self._progress = progress
        self._console = Console(highlight=False)
        self._bar = bars.Progress(
            bars.SpinnerColumn("dots"),
            bars.TextColumn("[bold]{task.description}"),
            bars.BarColumn(bar_width=32),
            bars.TextColumn("{task.fields[fraction]}"),
            bars.TextColumn("[dim]{task.fields[pace]}"),
            console=self._console,
        )
        self._task = self._bar.add_task(
            "compiling",
            total=progress.total_steps,
            fraction=progress.fraction,
            pace=progress.pace,
        )
        self._live = RichLive(
            get_renderable=self._draw,
            console=self._console,
            refresh_per_second=8,
            vertical_overflow="visible",
        )

    @property
    def problem(self) -> str:
        """None that the process outlives: a terminal that closes ends it."""
        return ""

    def start(self) -> None:
        """Begins to draw."""
        self._live.start()

    def say(self, text: str) -> None:
        """Prints above the bar."""
        self._console.print(text, markup=False, soft_wrap=True)

    def update(self, metrics: Metrics, step: int) -> None:
        """Moves the bar and keeps the numbers."""
        self._progress.update(metrics, step)
        self._bar.update(
            self._task,
            completed=step,
            description="training" if step else "compiling",
            fraction=self._progress.fraction,
            pace=self._progress.pace,
        )

    def stop(self) -> None:
        """Leaves the last state on the screen."""
        self._bar.stop_task(self._task)
        self._live.stop()

    def conclude(self, path: Path) -> None:
        """Prints the folder below what was said before."""
        self.say(_concluding(path))

    def _draw(self) -> Any:
        from rich.console import Group
        from rich.table import Table

        table = Table.grid(padding=(0, 2))
        table.add_column(style="cyan")
        table.add_column(justify="right")
        for name, text in self._progress.numbers.items():
            table.add_row(name, text)
        return Group(self._bar, table)


def _concluding(path: Path) -> str:
    return f"run folder    {path}"
