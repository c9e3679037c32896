"""The command `train`: from options to a run folder."""

import argparse
from contextlib import closing
from datetime import datetime
from importlib.util import find_spec
from pathlib import Path
from typing import final

import jax
import jax.random as jr
import jax.tree_util as jtu

from .._keys import derive
from ..algorithms.loop import TrainingFault, TrainingInterrupted, TrainResult
from ..algorithms.ppo import train_ppo
from ..networks._trainable import partition_trainable
from ..presets import build, preset, Setup
from ..runs import expect_unused, Metrics, RunFolder
from ..testing.violation import LawViolation
from .arguments import UsageError
from .display import AbstractDisplay, new_display, tell
from .interrupts import INTERRUPTED, Interrupts, Stage
from .picture import draw_learning_curve
from .progress import EVALUATION, EVALUATION_SPREAD, number


def train(options: argparse.Namespace) -> int:
    """Trains, shows how it goes, and writes the run folder.

    **Arguments:**

    - `options`: what `parse` returned.

    **Returns:**

    The exit code: 0, or 1 after a fault, or 130 after Ctrl-C. In all three cases the
    folder holds the network after the last good iteration.

    **Raises:**

    `UsageError` if it is not possible to train as asked for.
    """
    _expect_extra()
    path = _choose_folder(options)
    setup = _build(options)
    display = new_display(
        quiet=options.quiet,
        total_steps=setup.whole_budget,
        replay_tolerance=setup.replay_tolerance,
    )
    with Interrupts(display) as interrupts:
        with interrupts.lock:
            folder = interrupts.folder = _open_folder(path, options, setup)
        with closing(folder):
            for line in _introduction(options, setup, path):
                display.say(line)
            display.start()
            try:
                code, result, problem = _run(setup, folder, display, interrupts)
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
    print(path if options.quiet else f"run folder    {path}")
    return code


def _run(
    setup: Setup, folder: RunFolder, display: AbstractDisplay, interrupts: Interrupts
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
        )
        code, problem = 0, ""
    except TrainingInterrupted as interruption:
        code, result = INTERRUPTED, interruption.result
        problem = (
            f"interrupted after {result.total_steps:,} steps; "
            f"{folder.path} keeps the run"
        )
    except TrainingFault as fault:
        code, result, problem = 1, fault.result, f"error: {fault}"
    except Exception as error:
        if recorder.has_begun:
            raise
        with interrupts.lock:
            folder.discard()
        if isinstance(error, (ValueError, TypeError, LawViolation)):
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
        unscaled = {
            name: value / self._setup.preset.reward_scale
            if name.startswith("episode/return/")
            else value
            for name, value in metrics.items()
        }
        interrupts, setup = self._interrupts, self._setup
        with interrupts.lock:
            self.has_begun = True
            self._folder.log(unscaled, step)
            self._display.update(unscaled, step)
            if step >= setup.whole_budget:
                interrupts.stage = Stage.SAVING
            elif interrupts.requested and step % setup.steps_per_call == 0:
                interrupts.stage = Stage.SAVING
                raise KeyboardInterrupt
            elif step:
                interrupts.stage = Stage.TRAINING


def _expect_extra() -> None:
    missing = [name for name in ("rich", "matplotlib") if find_spec(name) is None]
    if missing:
        raise UsageError(
            f"training from the command line needs {' and '.join(missing)}; "
            'run: pip install "nnx_ppo_fn[cli]"'
        )


def _choose_folder(options: argparse.Namespace) -> Path:
    """Where the run is going to be; refused at once if it cannot be there."""
    path = options.out or Path("runs") / "-".join(
        (
            options.env.replace(":", "-"),
            options.policy,
            f"seed{_seed(options)}",
            datetime.now().strftime("%Y%m%d-%H%M%S"),
        )
    )
    try:
        expect_unused(path)
    except OSError as error:
        raise UsageError(_in_words(error, path)) from error
    return path


def _seed(options: argparse.Namespace) -> int:
    if options.seed is not None:
        return options.seed
    try:
        return int(preset(options.env, options.policy).config.seed)
    except ValueError as error:
        raise UsageError(str(error)) from error


def _build(options: argparse.Namespace) -> Setup:
    seed = _seed(options)
    try:
        return build(
            options.env,
            options.policy,
            # Under a name, since training uses the seed's key as well.
            key=derive(jr.key(seed), "initial weights"),
            total_steps=options.total_steps,
            n_envs=options.n_envs,
            learning_rate=options.learning_rate,
            seed=seed,
        )
    except (ValueError, TypeError, ImportError) as error:
        raise UsageError(str(error)) from error


def _open_folder(path: Path, options: argparse.Namespace, setup: Setup) -> RunFolder:
    try:
        return RunFolder(path, options.env, options.policy, setup)
    except OSError as error:
        raise UsageError(_in_words(error, path)) from error


def _in_words(error: OSError, path: Path) -> str:
    """What is wrong with a folder. The system's own errors come with a number."""
    if error.strerror is None:
        return str(error)
    return f"cannot make the run folder {path}: {error.strerror}"


def _introduction(options: argparse.Namespace, setup: Setup, folder: Path) -> list[str]:
    env, ppo = setup.eval_env, setup.config.ppo
    actions = f"{env.action_size} {'choices' if env.discrete else 'numbers'}"
    limit = env.max_episode_length
    parameters, _ = partition_trainable(setup.network)
    count = sum(leaf.size for leaf in jtu.tree_leaves(parameters))
    return [
        f"environment   {options.env}: observations of {env.observation_size} numbers, "
        f"actions of {actions}" + (f", at most {limit} steps" if limit else ""),
        f"policy        {options.policy} with {count:,} trainable parameters",
        f"training      {setup.whole_budget:,} steps in {ppo.n_envs} environments, "
        f"seed {setup.config.seed}, on {jax.default_backend()}",
        f"run folder    {folder}",
    ]


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
