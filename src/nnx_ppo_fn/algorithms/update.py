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
) -> Int[Array, "updates minibatch"]:
    """Environments of every minibatch: each epoch deals all of them out anew."""
    epochs = jax.vmap(lambda epoch_key: jr.permutation(epoch_key, config.n_envs))(
        jr.split(key, config.n_epochs)
    )
    return epochs.reshape(
        config.n_epochs * config.n_minibatches, config.n_envs // config.n_minibatches
    )


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
        carry: tuple[PyTree, PyTree], indices: Int[Array, " minibatch"]
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
