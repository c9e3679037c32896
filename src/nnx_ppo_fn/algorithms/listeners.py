"""Tells functions and callbacks what happens while training."""

from collections.abc import Callable, Sequence
from typing import Any, cast, final, TypeAlias

from .callbacks import Callback
from .stopping import TrainingInterrupted, TrainingStopped
from .types import Metrics, TrainingState, TrainResult, VideoData


LogFunction: TypeAlias = Callable[[Metrics, int], None]
VideoFunction: TypeAlias = Callable[[VideoData], None]
CheckpointFunction: TypeAlias = Callable[[TrainingState, int], None]


@final
class ListenerFailed(Exception):
    """A listener raised an exception, which is this one's cause."""

    def __init__(self, name: str):
        super().__init__(f"{name} failed")
        self.name = name


@final
class Listeners:
    """Everyone who is told about a training run."""

    def __init__(
        self,
        *,
        log_fn: LogFunction | None = None,
        video_fn: VideoFunction | None = None,
        checkpoint_fn: CheckpointFunction | None = None,
        callbacks: Sequence[Callback] = (),
    ):
        """Nothing is told yet; arguments are those of `train_ppo`.

        **Raises:**

        `TypeError` for callbacks that are none.
        """
        _expect_callbacks(callbacks)
        self.video_fn = video_fn
        self.checkpoint_fn = checkpoint_fn
        self._log_fn = log_fn
        self._callbacks = tuple(callbacks)

    def iteration(self, metrics: Metrics, step: int) -> None:
        """Tells of an iteration."""
        if self._log_fn is not None:
            _call("log_fn", self._log_fn, dict(metrics), step)
        for one in self._callbacks:
            _call(_name(one, "on_iteration"), one.on_iteration, dict(metrics), step)

    def evaluation(self, metrics: Metrics, step: int) -> None:
        """Tells of an evaluation."""
        for one in self._callbacks:
            _call(_name(one, "on_eval"), one.on_eval, dict(metrics), step)

    def video(self, record: Callable[[], VideoData]) -> None:
        """Records a video and shows it, if someone wants to see it."""
        if self.video_fn is not None:
            _call("video_fn", self.video_fn, _call("recording a video", record))

    def checkpoint(self, state: TrainingState, step: int) -> None:
        """Shows the training state."""
        if self.checkpoint_fn is not None:
            _call("checkpoint_fn", self.checkpoint_fn, state, step)

    def end(
        self, result: TrainResult, stop: TrainingStopped | TrainingInterrupted | None
    ) -> TrainingStopped | TrainingInterrupted | None:
        """Tells that training is over.

        **Arguments:**

        - `result`: what there is.
        - `stop`: the error that ends training early, if one does.

        **Returns:**

        The error to raise: `stop`, or else what the first failure has become. Further
        failures are notes of that error. Everyone is told in any case.
        """
        for one in self._callbacks:
            try:
                _call(_name(one, "on_end"), one.on_end, result)
            except KeyboardInterrupt:
                failure = TrainingInterrupted(result)
            except ListenerFailed as failed:
                failure = as_stop(failed, result, result.total_steps)
            else:
                continue
            if stop is None:
                stop = failure
            else:
                stop.add_note(str(failure))
        return stop


def as_stop(failed: ListenerFailed, result: TrainResult, step: int) -> TrainingStopped:
    """A listener that fails must not take the training with it.

    **Arguments:**

    - `failed`: says who has failed.
    - `result`: what there is.
    - `step`: what the listener was told of.
    """
    error = failed.__cause__
    stop = TrainingStopped(
        f"{failed} after {step} environment steps: {type(error).__name__}: {error}",
        result,
    )
    stop.__cause__ = error
    return stop


def _call(name: str, function: Callable[..., Any], *news: Any) -> Any:
    try:
        return function(*news)
    except Exception as error:
        raise ListenerFailed(name) from error


def _name(callback: Callback, method: str) -> str:
    return f"{type(callback).__name__}.{method}"


def _expect_callbacks(callbacks: Any) -> None:
    if isinstance(callbacks, Callback):
        raise TypeError(
            f"callbacks must be a list; write [{type(callbacks).__name__}(...)]"
        )
    if not isinstance(callbacks, Sequence):
        raise TypeError(
            "callbacks must be a list of callbacks, empty if there are none, got "
            f"{type(callbacks).__name__}"
        )
    for one in cast(Sequence[Any], callbacks):
        if isinstance(one, type):
            raise TypeError(
                f"expected callbacks, got the class {one.__name__}; write "
                f"{one.__name__}(...)"
            )
        if not isinstance(one, Callback):
            raise TypeError(
                "expected callbacks that derive from Callback, got "
                f"{type(one).__name__}; a function of (metrics, step) is a log_fn"
            )
