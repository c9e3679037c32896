"""PPO's clipped loss over a replayed rollout."""

import functools as ft
from typing import Any

import jax
import jax.numpy as jnp
import jax.tree_util as jtu
from jaxtyping import Array, Bool, Float

from .._custom_types import PyTree
from ..networks.types import AnyModule
from .advantages import (
    advantages_and_targets,
    masked_mean,
    normalize,
    per_sampler,
    successor_values,
)
from .config import LoggingLevel, PPOConfig, Scalar
from .replay import replay
from .rollout import critic_value
from .types import Rollout


def ppo_loss(
    network: AnyModule, rollout: Rollout, config: PPOConfig
) -> tuple[Float[Array, ""], dict[str, Any]]:
    """The loss whose gradient improves the network (Schulman et al. 2017, 1707.06347).

    The clipped surrogate of the policy, `critic_loss_weight` times half the squared
    error of the values, and whatever regularisation the network's modules ask for:
    entropy and Kullback-Leibler terms are theirs.

    **Arguments:**

    - `network`: what is differentiated.
    - `rollout`: a whole one, or a minibatch of environments, `[T, B]`.
    - `config`: the coefficients.

    **Returns:**

    `(loss, metrics)`, all scalars. `metrics["replay/log_ratio"]` is the largest
    change of a log-likelihood since the rollout, relative to its size where that is
    above 1; with unchanged weights it must be about 0.

    **Raises:**

    `ValueError` for a rollout without steps or environments.
    """
    if 0 in rollout.is_first.shape:
        raise ValueError(
            "expected a rollout of at least one step of one environment, got is_first "
            f"[{', '.join(map(str, rollout.is_first.shape))}]"
        )
    transitions = rollout.transitions
    replayed = replay(
        network,
        rollout,
        chunk_length=config.replay_chunk_length,
        rematerialize=config.replay_rematerialize,
        n_shards=config.n_shards,
    )
    new = replayed.output
    old = transitions.network_output
    counted, learned = _masks(transitions.truncated, config)
    if config.advantages_from == "replay":
        values = jax.lax.stop_gradient(new.value_estimates)
        last_value = jax.lax.stop_gradient(
            critic_value(network, replayed.next_state, rollout.last_observation)
        )
    else:
        values = old.value_estimates
        last_value = jtu.tree_map(lambda v: v[-1], transitions.bootstrap_value)
    next_values = jtu.tree_map(
        lambda value, last, bootstrap: successor_values(
            value, last, transitions.done, transitions.truncated, bootstrap
        ),
        values,
        last_value,
        transitions.bootstrap_value,
    )
    advantages, targets = advantages_and_targets(
        transitions.rewards,
        values,
        next_values,
        transitions.done,
        learned,
        discounting_factor=config.discounting_factor,
        gae_lambda=config.gae_lambda,
    )
    advantages = per_sampler(
        advantages, new.loglikelihoods, combined=config.combine_advantages
    )
    if config.normalize_advantages:
        advantages = jtu.tree_map(
            lambda a: normalize(a, config.advantage_std_floor, counted), advantages
        )
    actor = jtu.tree_map(
        ft.partial(clipped_surrogate, clip_range=config.clip_range, valid=counted),
        new.loglikelihoods,
        old.loglikelihoods,
        advantages,
    )
    critic = jtu.tree_map(
        lambda value, target: 0.5 * masked_mean(jnp.square(value - target), counted),
        new.value_estimates,
        targets,
    )
    regularization = masked_mean(replayed.regularization_loss, counted)
    loss = _sum(actor) + config.critic_loss_weight * _sum(critic) + regularization
    metrics: dict[str, Any] = {
        "replay/log_ratio": log_ratio(new.loglikelihoods, old.loglikelihoods)
    }
    level = config.logging_level
    if LoggingLevel.LOSSES in level:
        metrics["losses/actor"] = actor
        metrics["losses/critic"] = critic
        metrics["losses/regularization"] = regularization
    if LoggingLevel.ACTOR_EXTRA in level:
        metrics["losses/clipping_fraction"] = jtu.tree_map(
            lambda after, before: masked_mean(
                (jnp.abs(jnp.exp(after - before) - 1) > config.clip_range).astype(
                    jnp.float32
                ),
                counted,
            ),
            new.loglikelihoods,
            old.loglikelihoods,
        )
        metrics["losses/approximate_kl"] = jtu.tree_map(
            lambda after, before: masked_mean(
                jnp.expm1(after - before) - (after - before), counted
            ),
            new.loglikelihoods,
            old.loglikelihoods,
        )
    if LoggingLevel.CRITIC_EXTRA in level:
        metrics["losses/advantages"] = jtu.tree_map(
            lambda a: masked_mean(jnp.abs(a), counted), advantages
        )
        metrics["losses/critic_R^2"] = jtu.tree_map(
            lambda error, target: 1 - 2 * error / (jnp.var(target) + 1e-8),
            critic,
            targets,
        )
    return loss, metrics


def clipped_surrogate(
    new_log_likelihood: Float[Array, "T B"],
    old_log_likelihood: Float[Array, "T B"],
    advantages: Float[Array, "T B"],
    *,
    clip_range: Scalar,
    valid: Bool[Array, "T B"],
) -> Float[Array, ""]:
    """Minus the mean of `min(ratio * A, clip(ratio, 1 - range, 1 + range) * A)`.

    **Arguments:**

    - `new_log_likelihood`, `old_log_likelihood`: of the actions taken.
    - `advantages`: `A`.
    - `clip_range`: how far from 1 a ratio counts.
    - `valid`: the steps that count.
    """
    ratio = jnp.exp(new_log_likelihood - old_log_likelihood)
    clipped = jnp.clip(ratio, 1 - clip_range, 1 + clip_range)
    return -masked_mean(jnp.minimum(ratio * advantages, clipped * advantages), valid)


def log_ratio(new: PyTree, old: PyTree) -> Float[Array, ""]:
    """The largest `|new - old| / max(1, |old|)` over all log-likelihoods.

    NaN if anything is NaN.
    """

    def largest(after: Array, before: Array) -> Array:
        return jnp.max(jnp.abs(after - before) / jnp.maximum(1, jnp.abs(before)))

    errors = jtu.tree_leaves(jtu.tree_map(largest, new, old))
    return ft.reduce(jnp.maximum, errors)


def _masks(
    truncated: Bool[Array, "T B"], config: PPOConfig
) -> tuple[Bool[Array, "T B"], Bool[Array, "T B"]]:
    """The steps that the loss counts, and those that get an advantage."""
    every = jnp.ones_like(truncated)
    if config.truncation == "bootstrap":
        return every, every
    if config.truncation == "mask":
        return ~truncated, ~truncated
    return every, ~truncated


def _sum(tree: PyTree) -> Float[Array, ""]:
    return ft.reduce(jnp.add, jtu.tree_leaves(tree))
