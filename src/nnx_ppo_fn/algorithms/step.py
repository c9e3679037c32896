"""One iteration of PPO as a pure function of the training state."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.tree_util as jtu
from jaxtyping import Array, Key

from .._counter import Counter
from .._custom_types import PyTree
from .._keys import advance_keys, derive, expect_key, one_per_environment
from .._tree import is_key
from ..envs import RLEnv
from ..networks.types import AnyModule
from .checks import check_training
from .config import expect_config, PPOConfig, TrainConfig
from .faults import diagnose
from .metrics import iteration_metrics
from .optimizer import learning_rate_at, make_optimizer
from .rollout import initial_rollout_state, unroll_env
from .sharding import partitioned_by_compiler
from .tolerance import replay_tolerance
from .truncation import warn_if_impossible, with_possible_truncation
from .types import own, Rollout, split_network, Status, TrainingState
from .update import update


def new_training_state(
    env: RLEnv, network: AnyModule, config: TrainConfig, *, key: Key[Array, ""]
) -> TrainingState:
    """Everything that training starts from.

    **Arguments:**

    - `env`: the environment.
    - `network`: a network that ends in a `PPOAdapter`. Its arrays are copied.
    - `config`: how many environments, and which optimiser.
    - `key`: of all the randomness in training. It may be traced: this function works
      under `jax.vmap` over keys, which gives the states of many seeds.

    **Returns:**

    The state before the first `ppo_step`.

    **Raises:**

    `InvalidEnvironmentError`, `CompositionError` or `LawViolation` where the
    environment or the network breaks its contract.
    """
    expect_key(key)
    expect_config(config)
    check_training(env, network)
    network = own(network)
    parameters, constants, static = split_network(network)
    environment_keys = one_per_environment(
        derive(key, "environments"), config.ppo.n_envs
    )
    optimizer = make_optimizer(config.ppo, config.ppo.learning_rate)
    state = TrainingState(
        parameters=parameters,
        constants=constants,
        static=static,
        optimizer_state=optimizer.init(parameters),
        rollout_state=initial_rollout_state(env, network, environment_keys),
        key=derive(key, "iterations"),
        env_steps=Counter.zero(),
        status=jnp.array(Status.HEALTHY, jnp.int32),
        fault_environment=jnp.array(-1, jnp.int32),
    )
    warn_if_impossible(config.ppo, state.rollout_state.env_state)
    # A buffer that stands in two places, such as a zero of many, cannot be donated.
    return own(state)


def ppo_step(
    env: RLEnv, training_state: TrainingState, config: TrainConfig
) -> tuple[TrainingState, dict[str, Array]]:
    """A rollout, the updates that learn from it, and the statistics.

    Pure, and of the same shapes out as in:

    ```python
    options = step_compiler_options()
    step = jax.jit(
        ppo_step, static_argnums=0, donate_argnums=1, compiler_options=options
    )
    step(env, state, config)
    jax.lax.scan(lambda s, _: ppo_step(env, s, config), state, None, length=10)
    jax.vmap(ppo_step, in_axes=(None, 0, None))(env, states, config)
    ```

    **Arguments:**

    - `env`: the environment.
    - `training_state`: where training stands.
    - `config`: the settings. Coefficients may be arrays.

    **Returns:**

    `(training_state, metrics)`, the metrics scalars under flat names. If something
    went wrong the state is the one before, with `status` set; a state whose status is
    set already is passed through.
    """
    settings = with_possible_truncation(
        config.ppo, training_state.rollout_state.env_state
    )
    _check_batch(training_state, settings)
    return partitioned_by_compiler(
        lambda state: _step(env, state, settings), training_state
    )


def _step(
    env: RLEnv, training_state: TrainingState, settings: PPOConfig
) -> tuple[TrainingState, dict[str, Array]]:
    network = training_state.network
    next_key, iteration_key = advance_keys(training_state.key)
    rollout_state, rollout = unroll_env(
        env,
        network,
        training_state.rollout_state,
        settings.rollout_length,
        n_shards=settings.n_shards,
    )
    parameters, optimizer_state, update_metrics = update(
        training_state.parameters,
        eqx.combine(training_state.constants, training_state.static.tree),
        training_state.optimizer_state,
        rollout,
        settings,
        learning_rate=learning_rate_at(settings, training_state.env_steps.as_float()),
        key=iteration_key,
    )
    updated = eqx.combine(
        parameters, training_state.constants, training_state.static.tree
    ).update_statistics(_counted_extras(rollout, settings))
    _, constants, _ = split_network(updated)
    fault, environment = diagnose(
        rollout,
        update_metrics["replay/log_ratio"][0],
        (
            training_state.parameters,
            training_state.constants,
            training_state.optimizer_state,
        ),
        (parameters, constants, optimizer_state),
        replay_tolerance(settings, parameters),
    )
    was_healthy = training_state.status == Status.HEALTHY
    next_state = dataclasses.replace(
        training_state,
        parameters=parameters,
        constants=constants,
        optimizer_state=optimizer_state,
        rollout_state=rollout_state,
        key=next_key,
        env_steps=training_state.env_steps.add(settings.steps_per_iteration),
    )
    stopped = dataclasses.replace(
        training_state,
        status=jnp.where(was_healthy, fault, training_state.status),
        fault_environment=jnp.where(
            was_healthy, environment, training_state.fault_environment
        ),
    )
    goes_on = was_healthy & (fault == Status.HEALTHY)
    # A branch, since a select for every array of the state takes long to compile.
    state = jax.lax.cond(goes_on, lambda: next_state, lambda: stopped)
    return state, iteration_metrics(update_metrics, rollout, parameters, settings)


def _check_batch(training_state: TrainingState, config: PPOConfig) -> None:
    batch = len(training_state.rollout_state.is_first)
    if batch != config.n_envs:
        raise ValueError(
            f"the training state holds {batch} environments, the configuration says "
            f"n_envs={config.n_envs}"
        )


def _counted_extras(rollout: Rollout, config: PPOConfig) -> PyTree:
    """Extras for the statistics, NaN in the steps that truncation masks."""
    extras = rollout.transitions.rollout_extras
    if config.truncation != "mask":
        return extras

    def exclude(leaf: Array) -> Array:
        if is_key(leaf):
            return leaf
        if not jnp.issubdtype(leaf.dtype, jnp.inexact):
            leaf = leaf.astype(jnp.float32)
        truncated = rollout.transitions.truncated
        steps = truncated.reshape(truncated.shape + (1,) * (leaf.ndim - 2))
        return jnp.where(steps, jnp.nan, leaf)

    return jtu.tree_map(exclude, extras)
