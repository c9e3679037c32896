"""Epochs of minibatches over one rollout."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import optax
from jaxtyping import Array, Int, Key

from .._custom_types import PyTree
from ..networks.types import AnyModule
from .config import LoggingLevel, PPOConfig, Scalar
from .loss import ppo_loss
from .optimizer import make_optimizer
from .types import Rollout


def minibatch_indices(
    config: PPOConfig, key: Key[Array, ""]
) -> Int[Array, "*updates_and_minibatch"]:
    """Environments of every minibatch: each epoch deals all of them out anew.

    With several shards each of them is dealt out by itself, so that a minibatch has as
    many environments of one as of any other.

    **Returns:**

    Indices `[updates, n_envs / n_minibatches]`; with several shards, `[updates,
    n_shards, ...]`, and indices within the shard.
    """
    shards, minibatches = config.n_shards, config.n_minibatches
    in_shard = config.n_envs // shards
    # One draw and one sort, which compile faster than a permutation for each epoch.
    numbers = jr.bits(key, (config.n_epochs, shards, in_shard))
    dealt = jnp.argsort(numbers, axis=-1)
    dealt = dealt.reshape(config.n_epochs, shards, minibatches, -1)
    dealt = jnp.moveaxis(dealt, 1, 2).reshape(config.n_epochs * minibatches, shards, -1)
    return dealt[:, 0] if shards == 1 else dealt


def update(
    parameters: PyTree,
    rest: AnyModule,
    optimizer_state: PyTree,
    rollout: Rollout,
    config: PPOConfig,
    *,
    learning_rate: Scalar,
    key: Key[Array, ""],
) -> tuple[PyTree, PyTree, dict[str, Any]]:
    """Improves the parameters by `n_epochs * n_minibatches` steps of gradient descent.

    **Arguments:**

    - `parameters`, `rest`: the two parts of `partition_trainable`.
    - `optimizer_state`: of `make_optimizer`.
    - `rollout`: what was collected, `[T, B]`.
    - `config`: the settings.
    - `learning_rate`: of this iteration.
    - `key`: for the shuffles.

    **Returns:**

    `(parameters, optimizer_state, metrics)`, the metrics with one row per update.
    """
    optimizer = make_optimizer(config, learning_rate)

    def loss(parameters: PyTree, minibatch: Rollout) -> tuple[Array, dict[str, Any]]:
        return ppo_loss(eqx.combine(parameters, rest), minibatch, config)

    def step(
        carry: tuple[PyTree, PyTree], indices: Int[Array, "*minibatch"]
    ) -> tuple[tuple[PyTree, PyTree], dict[str, Any]]:
        parameters, optimizer_state = carry
        gradient, metrics = jax.grad(loss, has_aux=True)(
            parameters, rollout.minibatch(indices)
        )
        if LoggingLevel.GRAD_NORM in config.logging_level:
            metrics["grad_norm"] = optax.tree.norm(gradient)
        # Optax raises floats to integer powers, and adds what is float32 to what is
        # not, which strict promotion forbids.
        with jax.numpy_dtype_promotion("standard"):
            updates, optimizer_state = optimizer.update(
                gradient, optimizer_state, parameters
            )
            parameters = optax.apply_updates(parameters, updates)
        return (parameters, optimizer_state), metrics

    (parameters, optimizer_state), metrics = jax.lax.scan(
        step, (parameters, optimizer_state), minibatch_indices(config, key)
    )
    return parameters, optimizer_state, metrics
