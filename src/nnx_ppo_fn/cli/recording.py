"""What is kept of a training, and shown of it, while it goes on."""

import contextlib
import dataclasses
import math
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, final

from ..algorithms.types import Metrics
from ..networks.types import StatefulModule
from ..presets import Setup
from ..runs import remove_if_empty, RunFolder
from .display import AbstractDisplay
from .interrupts import Interrupts
from .options import Request
from .preparation import refusing_folder, unscaled
from .usage import UsageError


@final
class RunFolders:
    """The run folders of all seeds.

    - `path`: what they are in; or the only one.
    - `each`: one per seed.
    """

    path: Path
    each: list[RunFolder]

    def __init__(
        self, path: Path, places: Mapping[int, Path], request: Request, setup: Setup
    ):
        """Makes the folders.

        **Arguments:**

        - `path`: what `request` says, or leaves open.
        - `places`: the run folder of every seed.
        - `request`, `setup`: what the runs were built from, for one of the seeds.

        **Raises:**

        `UsageError` where that is not possible; then there are none.
        """
        self.path = path
        self.each = []
        for seed, place in places.items():
            config = dataclasses.replace(setup.config, seed=seed)
            own = dataclasses.replace(setup, config=config)
            try:
                with refusing_folder(place):
                    self.each.append(RunFolder(place, request.env, request.policy, own))
            except UsageError:
                self.discard()
                raise

    @property
    def has_network(self) -> bool:
        """Whether weights of every seed were written."""
        return all(folder.has_network for folder in self.each)

    def close(self) -> None:
        """Closes the metrics. What cannot be written has been told by then."""
        for folder in self.each:
            with contextlib.suppress(OSError):
                folder.close()

    def discard(self) -> None:
        """Takes the folders away again; what others have put there stays."""
        for folder in self.each:
            folder.discard()
        remove_if_empty(self.path)


@final
class Recorder:
    """Writes every seed's metrics and shows their mean, in the environment's own unit.

    It also is where training is asked to end, after Ctrl-C.

    - `folders`: what is written to.
    - `has_begun`: whether there was anything to write.
    """

    folders: RunFolders
    has_begun: bool

    def __init__(
        self,
        setup: Setup,
        folders: RunFolders,
        display: AbstractDisplay,
        interrupts: Interrupts,
    ):
        """Has nothing to write yet.

        **Arguments:**

        - `setup`: says what the unit is, and how long training is.
        - `folders`, `display`: where metrics go.
        - `interrupts`: whose lock is held while they do.
        """
        self.folders = folders
        self.has_begun = False
        self._setup = setup
        self._display = display
        self._interrupts = interrupts

    def log(self, metrics: Sequence[Metrics], step: int) -> None:
        """Writes and shows an iteration.

        **Arguments:**

        - `metrics`: of every seed; empty for one that has stopped.
        - `step`: environment steps so far.

        **Raises:**

        `KeyboardInterrupt` after Ctrl-C.
        """
        shown = [unscaled(one, self._setup) for one in metrics]
        with self._interrupts.lock:
            self.has_begun = True
            for folder, one in zip(self.folders.each, shown, strict=True):
                if one:
                    folder.log(one, step)
            self._display.update(_mean([one for one in shown if one]), step)
            self._interrupts.go_on(step, whole_budget=self._setup.whole_budget)

    def save(self, networks: Sequence[StatefulModule[Any, Any, Any]]) -> None:
        """Writes the weights of every seed."""
        with self._interrupts.lock:
            for folder, network in zip(self.folders.each, networks, strict=True):
                folder.save_network(network)


def _mean(metrics: Sequence[Metrics]) -> Metrics:
    """Means over the seeds that have a number."""
    means: Metrics = {}
    for name in metrics[0] if metrics else ():
        values = [one.get(name, math.nan) for one in metrics]
        finite = [value for value in values if math.isfinite(value)]
        means[name] = statistics.fmean(finite) if finite else math.nan
    return means
