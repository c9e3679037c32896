"""What is not the same for one seed as for several."""

import abc
import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import final

from ..algorithms.stopping import SeedsStopped, TrainingStopped
from ..algorithms.types import TrainResult
from ..presets import Setup
from .recording import Recorder


@final
@dataclasses.dataclass(frozen=True)
class Outcome:
    """What a training has come to.

    - `results`: one per seed.
    - `interrupted`: whether Ctrl-C ended it.
    - `problems`: why it has ended early, if it has; a line each.
    """

    results: Sequence[TrainResult]
    interrupted: bool = False
    problems: Sequence[str] = ()


class AbstractTraining(abc.ABC):
    """Trains the seeds that were asked for."""

    @property
    @abc.abstractmethod
    def seeds(self) -> Sequence[int]:
        """All of them, in order."""

    @abc.abstractmethod
    def place(self, path: Path, seed: int) -> Path:
        """The run folder of a seed, where `path` is what was asked for."""

    @abc.abstractmethod
    def train(self, setup: Setup, recorder: Recorder) -> Outcome:
        """Trains, and tells the recorder.

        **Arguments:**

        - `setup`: of the first seed.
        - `recorder`: is told of every iteration of all seeds.

        **Raises:**

        What `train_ppo` raises before it trains.
        """

    @abc.abstractmethod
    def evaluation(self, results: Sequence[TrainResult]) -> str:
        """The last evaluation in words; nothing where there was none."""

    @abc.abstractmethod
    def draw(self, path: Path) -> None:
        """Draws what goes beyond the picture of each run."""


def reason(stop: TrainingStopped | SeedsStopped) -> str:
    """Why training has stopped: what failed, or the fault itself."""
    cause = stop.__cause__
    return stop.reason if cause is None else f"{type(cause).__name__}: {cause}"
