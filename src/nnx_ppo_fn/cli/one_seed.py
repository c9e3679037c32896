"""A training of one seed, whose run folder is the one that was asked for."""

from collections.abc import Sequence
from pathlib import Path
from typing import final

from ..algorithms.ppo import train_ppo
from ..algorithms.stopping import TrainingInterrupted, TrainingStopped
from ..algorithms.types import TrainResult
from ..presets import Setup
from .abstract_training import AbstractTraining, Outcome, reason
from .options import Request
from .progress import EVALUATION, EVALUATION_SPREAD, number
from .recording import Recorder
from .writers import callbacks, video_function


@final
class OneSeed(AbstractTraining):
    """Trains by `train_ppo`, with all writers that were asked for."""

    def __init__(self, request: Request):
        """Takes the seed of the request."""
        self._request = request

    @property
    def seeds(self) -> Sequence[int]:
        """The only one."""
        return [self._request.seed]

    def place(self, path: Path, seed: int) -> Path:
        """What was asked for."""
        return path

    def train(self, setup: Setup, recorder: Recorder) -> Outcome:
        """Trains, and tells the recorder."""
        (folder,) = recorder.folders.each
        try:
            result = train_ppo(
                setup.train_env,
                setup.network,
                setup.config,
                eval_env=setup.eval_env,
                log_fn=lambda metrics, step: recorder.log([metrics], step),
                video_fn=video_function(self._request, setup, folder),
                checkpoint_fn=lambda state, step: recorder.save([state.network]),
                callbacks=callbacks(self._request, setup, folder),
            )
            return Outcome([result])
        except TrainingInterrupted as interruption:
            return Outcome([interruption.result], interrupted=True)
        except TrainingStopped as stop:
            return Outcome([stop.result], problems=[reason(stop)])

    def evaluation(self, results: Sequence[TrainResult]) -> str:
        """The return, and its spread over episodes."""
        (result,) = results
        if not result.eval_history:
            return ""
        latest = result.eval_history[-1]
        return f"{number(latest[EVALUATION])} ± {number(latest[EVALUATION_SPREAD])}"

    def draw(self, path: Path) -> None:
        """Nothing."""
