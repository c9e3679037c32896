"""Epochs of minibatches over one rollout."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import optax
from jaxtyping import Array, Float, Int, Key

from .._custom_types import PyTree
from ..networks.types import AnyModule
from .config import LoggingLevel, PPOConfig, Scalar
from .loss import ppo_loss
from .types import Rollout


def make_optimizer(
    config: PPOConfig, learning_rate: Scalar
) -> optax.GradientTransformation:
    """Adam as the configuration says, at a learning rate that may be traced.

    **Arguments:**

    - `config`: epsilon, clipping and decay.
    - `learning_rate`: of this iteration.
    """
    clipping, decay = config.gradient_clipping, config.weight_decay
    # What is switched off leaves its place, so that a state fits every configuration.
    return optax.chain(
        optax.identity() if clipping is None else optax.clip_by_global_norm(clipping),
        optax.scale_by_adam(eps=config.adam_epsilon),
        optax.identity() if decay is None else optax.add_decayed_weights(decay),
        optax.scale(-learning_rate),
    )


def learning_rate_at(config: PPOConfig, env_steps: Float[Array, ""]) -> Array:
    """The learning rate after `env_steps` environment steps: it falls linearly.

    A function of the steps and not of calls, so that a resumed run goes on where it
    stopped.
    """
    progress = jnp.clip(env_steps / float(max(config.total_steps, 1)), 0, 1)
    remaining = 1 - (1 - config.learning_rate_final_fraction) * progress
    return config.learning_rate * remaining


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
    deal = jax.vmap(jax.vmap(lambda one_key: jr.permutation(one_key, in_shard)))
    dealt = deal(jr.split(key, (config.n_epochs, shards)))
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
