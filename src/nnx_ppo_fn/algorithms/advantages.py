"""How much better than expected: next values, and generalised advantage estimation."""

import functools as ft
from typing import Any

import jax
import jax.numpy as jnp
import jax.tree_util as jtu
from jaxtyping import Array, Bool, Float

from .._custom_types import PyTree
from .config import Scalar


def successor_values(
    values: Float[Array, "T B"],
    last_value: Float[Array, " B"],
    done: Bool[Array, "T B"],
    truncated: Bool[Array, "T B"],
    bootstrap_value: Float[Array, "T B"],
) -> Float[Array, "T B"]:
    """The value of what follows each step.

    Truncation is not termination: an episode that was cut by a time limit would have
    gone on, so the critic's value of its final observation stands for the rest
    (Pardo et al. 2018, arXiv 1712.00378).

    **Arguments:**

    - `values`: of the observations, `[T, B]`.
    - `last_value`: of the observation after the last step, `[B]`.
    - `done`: where an episode ended, truncated or not.
    - `truncated`: where a time limit cut it.
    - `bootstrap_value`: the value of a truncated episode's final observation.

    **Returns:**

    `[T, B]`: 0 where terminated, `bootstrap_value` where truncated, else the next
    step's value.
    """
    following = jnp.concatenate([values[1:], last_value[None]])
    return jnp.where(truncated, bootstrap_value, jnp.where(done, 0, following))


def gae(
    rewards: Float[Array, "T B"],
    values: Float[Array, "T B"],
    next_values: Float[Array, "T B"],
    done: Bool[Array, "T B"],
    *,
    discounting_factor: Scalar,
    gae_lambda: Scalar,
    valid: Bool[Array, "T B"] | None = None,
) -> Float[Array, "T B"]:
    """Generalised advantage estimation (Schulman et al. 2016, arXiv 1506.02438).

    `delta[t] = rewards[t] + discount * next_values[t] - values[t]`, and
    `advantage[t] = delta[t] + discount * lambda * advantage[t + 1]` within an episode.

    **Arguments:**

    - `rewards`, `values`: of each step, `[T, B]`.
    - `next_values`: from `successor_values`.
    - `done`: where an episode ended, truncated or not: nothing flows back across it.
    - `discounting_factor`, `gae_lambda`: 0 to 1.
    - `valid`: where False, a step's advantage is 0.

    **Returns:**

    Advantages `[T, B]`.

    **Example:**

    ```python
    next_values = successor_values(values, last_value, done, truncated, bootstrap_value)
    advantages = gae(
        rewards, values, next_values, done, discounting_factor=0.99, gae_lambda=0.95
    )
    ```
    """
    deltas = rewards + discounting_factor * next_values - values
    counted = jnp.ones_like(done) if valid is None else valid

    def step(
        following: Float[Array, " B"], now: tuple[Array, Array, Array]
    ) -> tuple[Float[Array, " B"], Float[Array, " B"]]:
        delta, ends, counts = now
        flowing = jnp.where(ends, 0, discounting_factor * gae_lambda * following)
        advantage = jnp.where(counts, delta + flowing, 0)
        return advantage, advantage

    _, advantages = jax.lax.scan(
        step, jnp.zeros_like(deltas[0]), (deltas, done, counted), reverse=True
    )
    return advantages


def per_sampler(
    advantages: PyTree, loglikelihoods: PyTree, *, combined: bool
) -> PyTree:
    """The advantage that each sampler is trained on.

    **Arguments:**

    - `advantages`: an array `[T, B]`, or a tree with an entry per reward.
    - `loglikelihoods`: an array `[T, B]`, or a tree with an entry per sampler.
    - `combined`: whether every sampler gets the sum over all rewards. A single reward
      serves every sampler in any case.

    **Returns:**

    A tree like `loglikelihoods`.

    **Raises:**

    `ValueError` if rewards and samplers do not correspond and are not combined.
    """
    rewards = jtu.tree_leaves(advantages)
    if combined or len(rewards) == 1:
        total = ft.reduce(jnp.add, rewards)
        return jtu.tree_map(lambda _: total, loglikelihoods)
    if jtu.tree_structure(advantages) != jtu.tree_structure(loglikelihoods):
        raise ValueError(
            "several rewards need a sampler each, or combine_advantages=True: the "
            f"rewards are {jtu.tree_structure(advantages)}, the samplers "
            f"{jtu.tree_structure(loglikelihoods)}"
        )
    return advantages


def normalize(
    advantages: Float[Array, "T B"],
    std_floor: Scalar,
    valid: Bool[Array, "T B"],
) -> Float[Array, "T B"]:
    """Advantages with mean 0 and standard deviation 1 over the valid steps.

    **Arguments:**

    - `advantages`: `[T, B]`.
    - `std_floor`: the least standard deviation to divide by.
    - `valid`: the steps that count.
    """
    mean = masked_mean(advantages, valid)
    variance = masked_mean(jnp.square(advantages - mean), valid)
    floor = jnp.maximum(std_floor, 1e-8)
    return (advantages - mean) / jnp.maximum(jnp.sqrt(variance), floor)


def masked_mean(x: Float[Array, "T B"], valid: Bool[Array, "T B"]) -> Float[Array, ""]:
    """The mean of `x` over the valid steps; 0 if there are none."""
    count = jnp.maximum(jnp.sum(valid.astype(jnp.float32)), 1)
    return jnp.sum(jnp.where(valid, x, 0)) / count


def advantages_and_targets(
    rewards: PyTree,
    values: PyTree,
    next_values: PyTree,
    done: Bool[Array, "T B"],
    valid: Bool[Array, "T B"],
    *,
    discounting_factor: Scalar,
    gae_lambda: Scalar,
) -> tuple[PyTree, PyTree]:
    """Advantages and the targets of the critic, for every kind of reward.

    **Arguments:**

    - `rewards`, `values`, `next_values`: trees of one structure, leaves `[T, B]`.
    - the rest: as for `gae`.

    **Returns:**

    `(advantages, targets)`, cut off from differentiation; `targets = values +
    advantages`.
    """

    def one(reward: Any, value: Any, next_value: Any) -> Array:
        return gae(
            reward.astype(value.dtype),
            value,
            next_value,
            done,
            discounting_factor=discounting_factor,
            gae_lambda=gae_lambda,
            valid=valid,
        )

    advantages = jtu.tree_map(one, rewards, values, next_values)
    targets = jtu.tree_map(jnp.add, values, advantages)
    return jax.lax.stop_gradient((advantages, targets))
