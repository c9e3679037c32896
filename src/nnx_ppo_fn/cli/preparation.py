"""What comes before a training: where it goes, what it is made of, what is said."""

import contextlib
from collections.abc import Generator, Sequence
from datetime import datetime
from pathlib import Path

import jax
import jax.random as jr
import jax.tree_util as jtu

from ..algorithms.run_keys import RunKeys
from ..algorithms.types import Metrics
from ..envs.types import is_renderable
from ..networks._trainable import partition_trainable
from ..presets import build, Setup
from ..runs import expect_unused
from .options import Request
from .usage import refusing, UsageError


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
    with refusing_folder(path):
        expect_unused(path)
    return path


@contextlib.contextmanager
def refusing_folder(path: Path) -> Generator[None, None, None]:
    """A context in which a folder that no run can be written to is a `UsageError`."""
    saying = f"cannot make the run folder {path}"
    # Where it is in use, the error is a sentence of its own.
    with (
        refusing(OSError, saying=saying),
        refusing(FileExistsError, NotADirectoryError),
    ):
        yield


def build_setup(request: Request) -> Setup:
    """Environment, network and settings; the network is the first seed's."""
    with refusing(ValueError, TypeError, ImportError):
        setup = build(
            request.env,
            request.policy,
            key=RunKeys.of(jr.key(request.seed)).initial_weights,
            settings=request.settings,
            **request.decided,
        )
    if setup.config.video.enabled and not is_renderable(setup.eval_env):
        raise UsageError(
            f"{request.env} cannot draw itself; leave --video.enabled away"
        )
    return setup


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
    actions = f"{env.action_size} {'choice' if env.discrete else 'number'}"
    actions += "s" if env.action_size > 1 else ""
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
