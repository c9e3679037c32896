"""Training from beginning to end."""

import dataclasses
import warnings
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Key

from .._keys import expect_key
from ..envs import RLEnv
from ..networks.types import AnyModule
from .advantages import gae as gae, successor_values as successor_values
from .callbacks import Callback
from .checks import check_acting, check_resumed, check_training
from .config import expect_config, TrainConfig
from .listeners import CheckpointFunction, Listeners, LogFunction, VideoFunction
from .loop import Trainer
from .loss import ppo_loss as ppo_loss
from .run_keys import RunKeys
from .step import new_training_state as new_training_state, ppo_step as ppo_step
from .trajectory import expect_drawable
from .types import own, StaticHalf, TrainingState, TrainResult


def train_ppo(
    env: RLEnv,
    network: AnyModule,
    config: TrainConfig | None = None,
    *,
    key: Key[Array, ""] | None = None,
    total_steps: int | None = None,
    seed: int | None = None,
    eval_env: RLEnv | None = None,
    log_fn: LogFunction | None = None,
    video_fn: VideoFunction | None = None,
    checkpoint_fn: CheckpointFunction | None = None,
    callbacks: Sequence[Callback] = (),
    initial_state: TrainingState | None = None,
) -> TrainResult:
    """Trains a network with PPO.

    **Arguments:**

    - `env`: the environment to train in.
    - `network`: a network that ends in a `PPOAdapter`.
    - `config`: the settings; `TrainConfig()` by default.
    - `key`: of all randomness; wins over the seed.
    - `total_steps`, `seed`: replace those of `config`.
    - `eval_env`: to evaluate and to record in; `env` by default.
    - `log_fn`: called with `(metrics, step)` after every iteration, and once before
      the first with the first evaluation's.
    - `video_fn`: called with a `VideoData`, an episode without noise, before the
      training, every `config.video.every_steps` and at the end. It also takes
      `config.video.enabled=True`, so that settings alone switch the cost of drawing on
      and off; with one of the two and not the other there is a warning.
    - `checkpoint_fn`: called with `(training_state, step)` every
      `config.checkpoint_every_steps` and at the end. The state is valid during the
      call: the next iteration reuses its memory.
    - `callbacks`: objects that are told of iterations, evaluations and the end; see
      `Callback`.
    - `initial_state`: go on from here, with its network, rather than afresh.

    **Returns:**

    A `TrainResult`.

    **Raises:**

    `ValueError` (with `CompositionError` and `InvalidEnvironmentError`), `TypeError` or
    `LawViolation` before anything compiles; `TrainingFault` where numbers go wrong,
    `TrainingStopped` where a callback fails, and `TrainingInterrupted`, a
    `KeyboardInterrupt`, on Ctrl-C. These three hold the result so far.

    **Example:**

    ```python
    env = nnx_ppo_fn.envs.make("cartpole")
    network = nnx_ppo_fn.make_mlp_actor_critic(
        4, 2, [64, 64], [64, 64], key=jax.random.key(0), discrete=True
    )
    result = nnx_ppo_fn.train_ppo(env, network, total_steps=100_000)
    ```
    """
    config = TrainConfig() if config is None else config
    expect_config(config)
    if key is not None:
        expect_key(key)
    config = _overridden(config, total_steps, seed)
    root = jax.random.key(config.seed) if key is None else key
    keys = RunKeys.of(root)
    listeners = Listeners(
        log_fn=log_fn,
        video_fn=video_fn,
        checkpoint_fn=checkpoint_fn,
        callbacks=callbacks,
    )
    if eval_env is None:
        eval_env = env
    else:
        check_acting(eval_env, network)
    _check_video(eval_env, config, video_fn)
    if initial_state is None:
        state = new_training_state(env, network, config, key=keys.training)
    else:
        _expect_same_network(network, initial_state)
        check_training(env, network)
        check_resumed(env, initial_state.rollout_state)
        state = own(_healthy(initial_state))
    return Trainer(
        env,
        eval_env,
        state,
        config,
        keys=keys,
        listeners=listeners,
    ).run()


def _check_video(env: RLEnv, config: TrainConfig, video_fn: Any) -> None:
    """A long training without the videos that were meant would be known too late."""
    if config.video.enabled and video_fn is not None:
        expect_drawable(env)
    elif video_fn is not None:
        warnings.warn(
            "video_fn is given, but nothing is recorded without "
            "TrainConfig(video=VideoConfig(enabled=True))",
            stacklevel=3,
        )
    elif config.video.enabled:
        warnings.warn(
            "video.enabled is set, but nothing is recorded without a video_fn",
            stacklevel=3,
        )


def _healthy(state: TrainingState) -> TrainingState:
    """A state that a fault left behind is a good one; going on with it is a new try."""
    return eqx.tree_at(
        lambda s: (s.status, s.fault_environment),
        state,
        (jnp.zeros_like(state.status), -jnp.ones_like(state.fault_environment)),
    )


def _overridden(
    config: TrainConfig, total_steps: int | None, seed: int | None
) -> TrainConfig:
    if total_steps is not None:
        ppo = dataclasses.replace(config.ppo, total_steps=total_steps)
        config = dataclasses.replace(config, ppo=ppo)
    return config if seed is None else dataclasses.replace(config, seed=seed)


def _expect_same_network(network: Any, initial_state: TrainingState) -> None:
    """Going on with another network than the state's would surprise."""
    same = StaticHalf.of(own(network)) == initial_state.static
    if not same:
        raise ValueError(
            "initial_state was made with a network of another structure than the one "
            "given; pass initial_state.network as the network to go on with it"
        )
