"""How training ends before its budget is used."""

from typing import final

from .types import TrainResult


class TrainingStopped(RuntimeError):
    """Training ended before its budget was used. `result` holds what there is.

    Raised as it is where `log_fn` or another callback fails; the failure is its cause.
    """

    def __init__(self, message: str, result: TrainResult):
        super().__init__(message)
        self.result = result


@final
class TrainingFault(TrainingStopped):
    """Training stopped by itself. `result` holds the last good state."""


@final
class TrainingInterrupted(KeyboardInterrupt):
    """Ctrl-C during training. `result` holds what there is."""

    def __init__(self, result: TrainResult):
        super().__init__("training was interrupted; .result holds what there is")
        self.result = result
