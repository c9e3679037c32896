"""Plays whole episodes with a policy, whatever library it comes from."""

from collections.abc import Callable
from typing import TypeAlias

import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Key

from .ring import ACTION_SIZE, EPISODE_LENGTH, move, Place, start


Policy: TypeAlias = Callable[[Float[Array, "B 64"]], Float[Array, "B 8"]]
"""Actions without noise, one row per observation."""

EPISODES = 256


def best(observations: Float[Array, "B 64"]) -> Float[Array, "B 8"]:
    """The best action that is between -1 and 1, as all libraries' are."""
    return jnp.clip(0.5 * observations[:, :ACTION_SIZE], -1, 1)


def still(observations: Float[Array, "B 64"]) -> Float[Array, "B 8"]:
    """The best action for those who see nothing."""
    return jnp.zeros_like(observations[:, :ACTION_SIZE])


def mean_return(
    policy: Policy, *, episodes: int = EPISODES, key: Key[Array, ""] | None = None
) -> float:
    """The mean sum of rewards of whole episodes.

    **Arguments:**

    - `policy`: what acts.
    - `episodes`: how many, each from a start of its own.
    - `key`: of the starts; the same ones by default, whoever plays.
    """
    key = jr.key(20_261_130) if key is None else key

    @jax.jit
    def play(keys: Key[Array, " B"]) -> Float[Array, " B"]:
        def step(places: Place, _: None) -> tuple[Place, Float[Array, " B"]]:
            places, rewards, _ended = jax.vmap(move)(places, policy(places.numbers))
            return places, rewards

        places = jax.vmap(start)(keys)
        places = places._replace(time=jnp.zeros_like(places.time))
        _, rewards = jax.lax.scan(step, places, length=EPISODE_LENGTH)
        return jnp.sum(rewards, axis=0)

    return float(jnp.mean(play(jr.split(key, episodes))))
