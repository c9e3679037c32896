"""The command `train`: from options to a run folder, or one per seed."""

from collections.abc import Sequence
from contextlib import closing

from ..algorithms.types import TrainResult
from ..presets import Setup
from ..testing.violation import LawViolation
from .abstract_training import AbstractTraining, Outcome
from .display import new_display
from .interrupts import INTERRUPTED, Interrupts, Stage
from .one_seed import OneSeed
from .options import parse_train, Request
from .picture import draw_learning_curve
from .preparation import build_setup, choose_folder, introduction
from .recording import Recorder, RunFolders
from .several_seeds import SeveralSeeds
from .usage import refusing, tell, UsageError


def run(arguments: Sequence[str]) -> int:
    """Reads the options, and trains one seed or several.

    **Arguments:**

    - `arguments`: the words after `train`.

    **Returns:**

    The exit code.
    """
    return train(parse_train(arguments))


def train(request: Request) -> int:
    """Trains, shows how it goes, and writes a run folder for every seed.

    **Arguments:**

    - `request`: what was asked for.

    **Returns:**

    The exit code: 0, or 1 if something went wrong, or 130 after Ctrl-C. In all three
    cases the folders hold the networks after the last good iteration, unless they
    cannot be written.

    **Raises:**

    `UsageError` if it is not possible to train as asked for.
    """
    training = OneSeed(request) if request.seeds is None else SeveralSeeds(request)
    path = choose_folder(request)
    setup = build_setup(request)
    display = new_display(
        quiet=request.quiet,
        total_steps=setup.whole_budget,
        replay_tolerance=setup.replay_tolerance,
    )
    places = {seed: training.place(path, seed) for seed in training.seeds}
    with Interrupts(display) as interrupts:
        with interrupts.lock:
            folders = interrupts.folder = RunFolders(path, places, request, setup)
        with closing(folders):
            for line in introduction(request, setup, training.seeds, path):
                display.say(line)
            display.start()
            try:
                recorder = Recorder(setup, folders, display, interrupts)
                outcome = _train(training, setup, recorder, interrupts)
            finally:
                display.stop()
            for line in _conclusion(training, outcome.results):
                display.say(line)
            unsaved = _save(training, folders, outcome.results)
    problems = [*outcome.problems, *unsaved]
    when = "while saving" if interrupts.requested and not problems else ""
    if outcome.interrupted:
        when = f"after {_steps(outcome.results):,} steps"
    if when:
        runs = "the run" if request.seeds is None else "the runs"
        tell(f"interrupted {when}" + ("" if unsaved else f"; {path} keeps {runs}"))
    for problem in problems:
        tell(f"error: {problem}")
    print(path if request.quiet else f"run folder    {path}")
    return INTERRUPTED if when else int(bool(problems))


def _train(
    training: AbstractTraining,
    setup: Setup,
    recorder: Recorder,
    interrupts: Interrupts,
) -> Outcome:
    """Trains; an error before the first metrics leaves nothing behind."""
    try:
        outcome = training.train(setup, recorder)
    except Exception:
        if recorder.has_begun:
            raise
        with interrupts.lock:
            recorder.folders.discard()
        with refusing(ValueError, TypeError, ImportError, LawViolation):
            raise
    with interrupts.lock:
        interrupts.stage = Stage.SAVING
    return outcome


def _conclusion(
    training: AbstractTraining, results: Sequence[TrainResult]
) -> list[str]:
    first, *others = results
    seeds = f" of {len(results)} seeds" if others else ""
    lines = [
        f"trained       {_steps(results):,} steps{seeds} in "
        f"{first.train_seconds:.1f} s, after {first.compile_seconds:.1f} s of compiling"
    ]
    evaluation = training.evaluation(results)
    return [*lines, f"evaluation    return {evaluation}"] if evaluation else lines


def _steps(results: Sequence[TrainResult]) -> int:
    """Environment steps of the seed that came furthest."""
    return max(result.total_steps for result in results)


def _save(
    training: AbstractTraining, folders: RunFolders, results: Sequence[TrainResult]
) -> list[str]:
    """Writes networks and pictures, and returns what went wrong, if anything."""
    try:
        with refusing(OSError, saying=f"cannot write into {folders.path}"):
            for folder, result in zip(folders.each, results, strict=True):
                folder.save_network(result.network)
        for folder in folders.each:
            draw_learning_curve(folder.path)
        training.draw(folders.path)
    except UsageError as error:
        return [str(error)]
    return []
