"""The command `train --seeds N`: several seeds at once, each with a run folder."""

import dataclasses
import math
import statistics
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import final

from jaxtyping import Array, Key

from ..algorithms.seeds import SeedsInterrupted, train_seeds
from ..algorithms.types import Metrics, TrainResult
from ..networks.types import AnyModule
from ..presets import build_network, Setup
from ..runs import PICTURE, RunFolder
from ..testing.violation import LawViolation
from .comparison import draw_comparison
from .display import AbstractDisplay, new_display, tell
from .grouping import find_runs, group_runs
from .interrupts import INTERRUPTED, Interrupts, Stage
from .options import Request
from .picture import draw_learning_curve
from .preparation import (
    build_setup,
    choose_folder,
    introduction,
    open_folder,
    unscaled,
)
from .progress import EVALUATION, number, TRAINING_RETURN
from .usage import UsageError
from .values import LARGEST_SEED


def train_all(request: Request) -> int:
    """Trains several seeds, shows how they go, and writes a run folder for each.

    **Arguments:**

    - `request`: what was asked for.

    **Returns:**

    The exit code, as for one seed; 1 if any seed met a fault.

    **Raises:**

    `UsageError` if it is not possible to train as asked for.
    """
    seeds = _seeds(request)
    path = choose_folder(request)
    setup = build_setup(request, seed=request.seed)
    display = new_display(
        quiet=request.quiet,
        total_steps=setup.whole_budget,
        replay_tolerance=setup.replay_tolerance,
    )
    with Interrupts(display) as interrupts:
        with interrupts.lock:
            folders = interrupts.folder = _SeedFolders(path, request, setup, seeds)
        with closing(folders):
            for line in introduction(request, setup, seeds, path):
                display.say(line)
            display.start()
            try:
                code, results, problems = _run(
                    request, setup, seeds, folders, display, interrupts
                )
            finally:
                display.stop()
            for line in _conclusion(results):
                display.say(line)
            for folder, result in zip(folders.each, results, strict=True):
                folder.save_network(result.network)
                draw_learning_curve(folder.path)
            _draw(path)
    if interrupts.requested and not code:
        code = INTERRUPTED
        problems = [f"interrupted while saving; {path} keeps the runs"]
    for problem in problems:
        tell(problem)
    print(path if request.quiet else f"run folder    {path}")
    return code


def _seeds(request: Request) -> Sequence[int]:
    seeds = range(request.seed, request.seed + (request.seeds or 1))
    if seeds[-1] > LARGEST_SEED:
        raise UsageError(f"the last seed must be at most {LARGEST_SEED}")
    for option, given in (
        ("--tensorboard", request.tensorboard),
        ("--wandb", request.wandb is not None),
        ("--video.enabled", request.settings.config.video.enabled),
    ):
        if given:
            raise UsageError(f"{option} is for one seed; leave it or --seeds away")
    return seeds


def _run(
    request: Request,
    setup: Setup,
    seeds: Sequence[int],
    folders: "_SeedFolders",
    display: AbstractDisplay,
    interrupts: Interrupts,
) -> tuple[int, list[TrainResult], list[str]]:
    """The exit code, the results, and what went wrong, if anything."""
    recorder = _Recorder(setup, folders, display, interrupts)

    def make_network(key: Key[Array, ""]) -> AnyModule:
        options = setup.preset.network
        return build_network(setup.eval_env, request.policy, options, key=key)

    try:
        results = train_seeds(
            setup.train_env,
            make_network,
            setup.config,
            seeds=seeds,
            eval_env=setup.eval_env,
            log_fn=recorder,
        )
        code, problems = 0, []
    except SeedsInterrupted as interruption:
        code, results = INTERRUPTED, interruption.results
        steps = max(result.total_steps for result in results)
        problems = [f"interrupted after {steps:,} steps; {folders.path} keeps the runs"]
    except Exception as error:
        if recorder.has_begun:
            raise
        with interrupts.lock:
            folders.discard()
        if isinstance(error, (ValueError, TypeError, LawViolation)):
            raise UsageError(str(error)) from error
        raise
    with interrupts.lock:
        interrupts.stage = Stage.SAVING
    faults = [
        f"error: seed {seed}: {result.fault}"
        for seed, result in zip(seeds, results, strict=True)
        if result.fault
    ]
    return code or int(bool(faults)), results, [*problems, *faults]


@final
class _SeedFolders:
    """A folder with one run folder per seed."""

    path: Path
    each: list[RunFolder]

    def __init__(
        self, path: Path, request: Request, setup: Setup, seeds: Sequence[int]
    ):
        """Makes the folders."""
        self.path = path
        self.each = []
        for seed in seeds:
            config = dataclasses.replace(setup.config, seed=seed)
            own = dataclasses.replace(setup, config=config)
            self.each.append(open_folder(path / f"seed{seed}", request, own))

    @property
    def has_network(self) -> bool:
        """Whether weights of every seed were written."""
        return all(folder.has_network for folder in self.each)

    def close(self) -> None:
        """Closes the metrics."""
        for folder in self.each:
            folder.close()

    def discard(self) -> None:
        """Takes the folders away again; what others have put there stays."""
        for folder in self.each:
            folder.discard()
        if self.path.is_dir() and not any(self.path.iterdir()):
            self.path.rmdir()


@final
class _Recorder:
    """Writes every seed's metrics, and shows their mean."""

    def __init__(
        self,
        setup: Setup,
        folders: _SeedFolders,
        display: AbstractDisplay,
        interrupts: Interrupts,
    ):
        self.has_begun = False
        self._setup = setup
        self._folders = folders
        self._display = display
        self._interrupts = interrupts

    def __call__(self, metrics: list[Metrics], step: int) -> None:
        """What `train_seeds` calls once per iteration; a seed may have stopped."""
        shown = [unscaled(one, self._setup) for one in metrics]
        with self._interrupts.lock:
            self.has_begun = True
            for folder, one in zip(self._folders.each, shown, strict=True):
                if one:
                    folder.log(one, step)
            self._display.update(_mean([one for one in shown if one]), step)
            self._interrupts.go_on(step, self._setup)


def _mean(metrics: Sequence[Metrics]) -> Metrics:
    """Means over the seeds that have a number."""
    means: Metrics = {}
    for name in metrics[0] if metrics else ():
        values = [one.get(name, math.nan) for one in metrics]
        finite = [value for value in values if math.isfinite(value)]
        means[name] = statistics.fmean(finite) if finite else math.nan
    return means


def _conclusion(results: Sequence[TrainResult]) -> list[str]:
    first = results[0]
    steps = max(result.total_steps for result in results)
    lines = [
        f"trained       {steps:,} steps of {len(results)} seeds in "
        f"{first.train_seconds:.1f} s, after {first.compile_seconds:.1f} s of compiling"
    ]
    latest = [
        result.eval_history[-1][EVALUATION] for result in results if result.eval_history
    ]
    if latest:
        lines.append(
            f"evaluation    return {number(statistics.fmean(latest))} "
            f"± {number(statistics.pstdev(latest))} over seeds"
        )
    return lines


def _draw(path: Path) -> None:
    """All seeds in one picture: of evaluations, or else of the training itself."""
    runs = find_runs([path])
    for metric in (EVALUATION, TRAINING_RETURN):
        try:
            groups = group_runs(runs, metric)
        except UsageError:
            continue
        draw_comparison(groups, path / PICTURE, metric=metric)
        return
