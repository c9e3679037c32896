"""The command `train`: from options to a run folder, or one per seed."""

import functools as ft
import time
from collections.abc import Callable, Iterable, Sequence
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
from .progress import duration
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
    start = time.perf_counter()
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
            # First of all: the network is what cannot be had again.
            unsaved = _save(folders, outcome.results)
            undrawn = _draw(training, folders)
        seconds = time.perf_counter() - start
        for line in _conclusion(training, outcome.results, seconds):
            display.say(line)
    display.conclude(path)
    problems = [*outcome.problems, *unsaved, *undrawn]
    if display.problem:
        problems.append(f"cannot print: {display.problem}")
    when = "while saving" if interrupts.requested and not problems else ""
    if outcome.interrupted:
        when = f"after {_steps(outcome.results):,} steps"
    runs = "the run" if request.seeds is None else "the runs"
    kept = "" if unsaved else f"; {path} keeps {runs}"
    if when:
        tell(f"interrupted {when}{kept}")
    for problem in problems:
        tell(f"error: {problem}{kept}")
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
    training: AbstractTraining, results: Sequence[TrainResult], seconds: float
) -> list[str]:
    """What was trained, and how long it took: building and evaluations are the rest."""
    first, *others = results
    seeds = f" of {len(results)} seeds" if others else ""
    lines = [
        f"trained       {_steps(results):,} steps{seeds} in {first.train_seconds:.1f} "
        f"s, after {first.compile_seconds:.1f} s of compiling; {duration(seconds)} in "
        "all"
    ]
    evaluation = training.evaluation(results)
    return [*lines, f"evaluation    return {evaluation}"] if evaluation else lines


def _steps(results: Sequence[TrainResult]) -> int:
    """Environment steps of the seed that came furthest."""
    return max(result.total_steps for result in results)


def _save(folders: RunFolders, results: Sequence[TrainResult]) -> list[str]:
    """Writes all networks that can be written, and returns what went wrong."""
    return _attempt(
        (
            ft.partial(folder.save_network, result.network),
            f"cannot write the network into {folder.path}",
        )
        for folder, result in zip(folders.each, results, strict=True)
    )


def _draw(training: AbstractTraining, folders: RunFolders) -> list[str]:
    """Draws all pictures that can be drawn, and returns what went wrong."""
    each = [ft.partial(draw_learning_curve, folder.path) for folder in folders.each]
    every = ft.partial(training.draw, folders.path)
    return _attempt((draw, "cannot draw the picture") for draw in (*each, every))


def _attempt(works: Iterable[tuple[Callable[[], None], str]]) -> list[str]:
    """Does what can be done of `(work, complaint)`, and returns what went wrong."""
    problems: list[str] = []
    for work, saying in works:
        try:
            with refusing(OSError, ValueError, saying=saying):
                work()
        except UsageError as error:
            problems.append(str(error))
    return problems
