"""How training ends before its budget is used."""

from typing import final

from .types import TrainResult


class TrainingStopped(RuntimeError):
    """Training ended before its budget was used.

    Raised as it is where `log_fn` or another callback fails; the failure is its cause.

    - `reason`: what happened.
    - `result`: what was trained.
    """

    def __init__(self, reason: str, result: TrainResult):
        super().__init__(f"{reason}. What was trained is in this error's .result")
        self.reason = reason
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


@final
class SeedsStopped(RuntimeError):
    """Training of several seeds ended early.

    Raised where `log_fn` fails; the failure is its cause.

    - `reason`: what happened.
    - `results`: what was trained, of each seed.
    """

    def __init__(self, reason: str, results: list[TrainResult]):
        super().__init__(f"{reason}. What was trained is in this error's .results")
        self.reason = reason
        self.results = results


@final
class SeedsInterrupted(KeyboardInterrupt):
    """Ctrl-C while several seeds train. `results` holds what there is of each."""

    def __init__(self, results: list[TrainResult]):
        super().__init__("training was interrupted; .results holds what there is")
        self.results = results
