"""The command `train`: from options to a run folder."""

from collections.abc import Sequence
from contextlib import closing
from typing import final

from ..algorithms.loop import TrainingInterrupted, TrainingStopped, TrainResult
from ..algorithms.ppo import train_ppo
from ..algorithms.types import TrainingState
from ..presets import Setup
from ..runs import Metrics, RunFolder
from ..testing.violation import LawViolation
from .display import AbstractDisplay, new_display, tell
from .interrupts import INTERRUPTED, Interrupts, Stage
from .options import parse_train, Request
from .picture import draw_learning_curve
from .preparation import (
    build_setup,
    choose_folder,
    introduction,
    open_folder,
    unscaled,
)
from .progress import EVALUATION, EVALUATION_SPREAD, number
from .usage import UsageError
from .writers import callbacks, video_function


def run(arguments: Sequence[str]) -> int:
    """Reads the options, and trains one seed or several.

    **Arguments:**

    - `arguments`: the words after `train`.

    **Returns:**

    The exit code.
    """
    request = parse_train(arguments)
    if request.seeds is None:
        return train(request)
    from .training_seeds import train_all

    return train_all(request)


def train(request: Request) -> int:
    """Trains, shows how it goes, and writes the run folder.

    **Arguments:**

    - `request`: what was asked for.

    **Returns:**

    The exit code: 0, or 1 after a fault, or 130 after Ctrl-C. In all three cases the
    folder holds the network after the last good iteration.

    **Raises:**

    `UsageError` if it is not possible to train as asked for.
    """
    path = choose_folder(request)
    setup = build_setup(request, seed=request.seed)
    display = new_display(
        quiet=request.quiet,
        total_steps=setup.whole_budget,
        replay_tolerance=setup.replay_tolerance,
    )
    with Interrupts(display) as interrupts:
        with interrupts.lock:
            folder = interrupts.folder = open_folder(path, request, setup)
        with closing(folder):
            for line in introduction(request, setup, [request.seed], path):
                display.say(line)
            display.start()
            try:
                code, result, problem = _run(
                    request, setup, folder, display, interrupts
                )
            finally:
                display.stop()
            for line in _conclusion(result):
                display.say(line)
            folder.save_network(result.network)
            draw_learning_curve(path)
    if interrupts.requested and not code:
        code, problem = INTERRUPTED, f"interrupted while saving; {path} keeps the run"
    if problem:
        tell(problem)
    print(path if request.quiet else f"run folder    {path}")
    return code


def _run(
    request: Request,
    setup: Setup,
    folder: RunFolder,
    display: AbstractDisplay,
    interrupts: Interrupts,
) -> tuple[int, TrainResult, str]:
    """The exit code, the `TrainResult`, and what went wrong, if anything."""
    recorder = _Recorder(setup, folder, display, interrupts)
    try:
        result = train_ppo(
            setup.train_env,
            setup.network,
            setup.config,
            eval_env=setup.eval_env,
            log_fn=recorder,
            video_fn=video_function(request, setup, folder),
            checkpoint_fn=recorder.save,
            callbacks=callbacks(request, setup, folder),
        )
        code, problem = 0, ""
    except TrainingInterrupted as interruption:
        code, result = INTERRUPTED, interruption.result
        problem = (
            f"interrupted after {result.total_steps:,} steps; "
            f"{folder.path} keeps the run"
        )
    except TrainingStopped as stop:
        code, result, problem = 1, stop.result, f"error: {stop}"
    except Exception as error:
        if recorder.has_begun:
            raise
        with interrupts.lock:
            folder.discard()
        if isinstance(error, (ValueError, TypeError, ImportError, LawViolation)):
            raise UsageError(str(error)) from error
        raise
    with interrupts.lock:
        interrupts.stage = Stage.SAVING
    return code, result, problem


@final
class _Recorder:
    """Shows and writes metrics, with returns in the environment's own unit.

    It also is where training stops on request: between two compiled calls, when all of
    the former's metrics are written.
    """

    def __init__(
        self,
        setup: Setup,
        folder: RunFolder,
        display: AbstractDisplay,
        interrupts: Interrupts,
    ):
        self.has_begun = False
        self._setup = setup
        self._folder = folder
        self._display = display
        self._interrupts = interrupts

    def __call__(self, metrics: Metrics, step: int) -> None:
        """What `train_ppo` calls once per iteration."""
        shown = unscaled(metrics, self._setup)
        with self._interrupts.lock:
            self.has_begun = True
            self._folder.log(shown, step)
            self._display.update(shown, step)
            self._interrupts.go_on(step, self._setup)

    def save(self, state: TrainingState, step: int) -> None:
        """What `train_ppo` calls for every checkpoint."""
        with self._interrupts.lock:
            self._folder.save_network(state.network)


def _conclusion(result: TrainResult) -> list[str]:
    lines = [
        f"trained       {result.total_steps:,} steps in {result.train_seconds:.1f} s, "
        f"after {result.compile_seconds:.1f} s of compiling"
    ]
    if result.eval_history:
        latest = result.eval_history[-1]
        lines.append(
            f"evaluation    return {number(latest[EVALUATION])} "
            f"± {number(latest[EVALUATION_SPREAD])}"
        )
    return lines
