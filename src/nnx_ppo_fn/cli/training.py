"""The command `train`: from options to a run folder."""

import argparse
import sys
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
from ..runs import Metrics, RunFolder
from ..testing.violation import LawViolation
from .arguments import UsageError
from .display import AbstractDisplay, new_display
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
    setup = _build(options)
    folder = _open_folder(options, setup)
    display = new_display(quiet=options.quiet, total_steps=_whole_budget(setup))
    with closing(folder):
        for line in _introduction(options, setup, folder.path):
            display.say(line)
        display.start()
        try:
            code, result, problem = _run(setup, folder, display)
            folder.save_network(result.network)
            draw_learning_curve(folder.path)
        finally:
            display.stop()
    for line in _conclusion(result):
        display.say(line)
    if problem:
        print(f"nnx-ppo-fn: {problem}", file=sys.stderr)
    print(folder.path if options.quiet else f"run folder    {folder.path}")
    return code


def _run(
    setup: Setup, folder: RunFolder, display: AbstractDisplay
) -> tuple[int, TrainResult, str]:
    """The exit code, the `TrainResult`, and what cut the training short, if it was."""
    recorder = _Recorder(folder, display, setup.preset.reward_scale)
    try:
        result = train_ppo(
            setup.train_env,
            setup.network,
            setup.config,
            eval_env=setup.eval_env,
            log_fn=recorder,
        )
    except TrainingInterrupted as interruption:
        result = interruption.result
        return 130, result, f"interrupted after {result.total_steps:,} steps"
    except TrainingFault as fault:
        return 1, fault.result, f"error: {fault}"
    except (ValueError, TypeError, LawViolation) as refusal:
        if recorder.has_begun:
            raise
        folder.discard()
        raise UsageError(str(refusal)) from refusal
    return 0, result, ""


@final
class _Recorder:
    """Shows and writes metrics, with returns in the environment's own unit."""

    def __init__(
        self, folder: RunFolder, display: AbstractDisplay, reward_scale: float
    ):
        self.has_begun = False
        self._folder = folder
        self._display = display
        self._reward_scale = reward_scale

    def __call__(self, metrics: Metrics, step: int) -> None:
        """What `train_ppo` calls once per iteration."""
        self.has_begun = True
        unscaled = {
            name: value / self._reward_scale
            if name.startswith("episode/return/")
            else value
            for name, value in metrics.items()
        }
        self._folder.log(unscaled, step)
        self._display.update(unscaled, step)


def _expect_extra() -> None:
    missing = [name for name in ("rich", "matplotlib") if find_spec(name) is None]
    if missing:
        raise UsageError(
            f"training from the command line needs {' and '.join(missing)}; "
            'run: pip install "nnx_ppo_fn[cli]"'
        )


def _build(options: argparse.Namespace) -> Setup:
    try:
        seed = options.seed
        if seed is None:
            seed = preset(options.env, options.policy).config.seed
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


def _open_folder(options: argparse.Namespace, setup: Setup) -> RunFolder:
    path = options.out or Path("runs") / "-".join(
        (
            options.env.replace(":", "-"),
            options.policy,
            f"seed{setup.config.seed}",
            datetime.now().strftime("%Y%m%d-%H%M%S"),
        )
    )
    try:
        return RunFolder(path, options.env, options.policy, setup.preset)
    except OSError as error:
        raise UsageError(str(error)) from error


def _whole_budget(setup: Setup) -> int:
    """The step budget, filled up to whole iterations."""
    per_iteration = setup.config.ppo.steps_per_iteration
    return -(-setup.config.ppo.total_steps // per_iteration) * per_iteration


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
        f"training      {_whole_budget(setup):,} steps in {ppo.n_envs} environments, "
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
