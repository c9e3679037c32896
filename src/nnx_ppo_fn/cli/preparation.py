"""What comes before a training: where it goes, what it is made of, what is said."""

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

import jax
import jax.random as jr
import jax.tree_util as jtu

from .._keys import derive
from ..networks._trainable import partition_trainable
from ..presets import build, Setup
from ..runs import expect_unused, Metrics, RunFolder
from .options import Request
from .usage import UsageError


def choose_folder(request: Request) -> Path:
    """Where the run is going to be; refused at once if it cannot be there."""
    path = request.out or Path("runs") / "-".join(
        (
            request.env.replace(":", "-"),
            request.policy,
            f"seed{request.seed}" if request.seeds is None else f"{request.seeds}seeds",
            datetime.now().strftime("%Y%m%d-%H%M%S"),
        )
    )
    try:
        expect_unused(path)
    except OSError as error:
        raise UsageError(_in_words(error, path)) from error
    return path


def build_setup(request: Request, *, seed: int) -> Setup:
    """Environment, network and settings."""
    try:
        return build(
            request.env,
            request.policy,
            # Under a name, since training uses the seed's key as well.
            key=derive(jr.key(seed), "initial weights"),
            settings=request.settings,
            seed=seed,
            **request.decided,
        )
    except (ValueError, TypeError, ImportError) as error:
        raise UsageError(str(error)) from error


def open_folder(path: Path, request: Request, setup: Setup) -> RunFolder:
    """Makes the run folder."""
    try:
        return RunFolder(path, request.env, request.policy, setup)
    except OSError as error:
        raise UsageError(_in_words(error, path)) from error


def unscaled(metrics: Metrics, setup: Setup) -> dict[str, int | float]:
    """Metrics of a training with returns in the environment's own unit."""
    return {
        name: value / setup.preset.reward_scale
        if name.startswith("episode/return/")
        else value
        for name, value in metrics.items()
    }


def introduction(
    request: Request, setup: Setup, seeds: Sequence[int], folder: Path
) -> list[str]:
    """What is said before a training."""
    env, ppo = setup.eval_env, setup.config.ppo
    actions = f"{env.action_size} {'choices' if env.discrete else 'numbers'}"
    limit = env.max_episode_length
    parameters, _ = partition_trainable(setup.network)
    count = sum(leaf.size for leaf in jtu.tree_leaves(parameters))
    whose = (
        f"seed {seeds[0]}" if len(seeds) == 1 else f"seeds {seeds[0]} to {seeds[-1]}"
    )
    return [
        f"environment   {request.env}: observations of {env.observation_size} numbers, "
        f"actions of {actions}" + (f", at most {limit} steps" if limit else ""),
        f"policy        {request.policy} with {count:,} trainable parameters",
        f"training      {setup.whole_budget:,} steps in {ppo.n_envs} environments, "
        f"{whose}, on {jax.default_backend()}",
        f"run folder    {folder}",
    ]


def _in_words(error: OSError, path: Path) -> str:
    """What is wrong with a folder. The system's own errors come with a number."""
    if error.strerror is None:
        return str(error)
    return f"cannot make the run folder {path}: {error.strerror}"
