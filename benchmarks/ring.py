"""The environment that everything under test acts in.

It costs next to nothing, so that what is measured is the library. Its arithmetic stands
here once; each library's border is put around it where that library is run.
"""

from typing import final, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Bool, Float, Int, Key

from nnx_ppo_fn.envs import State


OBSERVATION_SIZE = 64
ACTION_SIZE = 8
EPISODE_LENGTH = 1000
"""The most steps in an episode."""


class Place(NamedTuple):
    """Where an environment stands: the numbers on its ring, and the time."""

    numbers: Float[Array, "64"]
    time: Int[Array, ""]


def start(key: Key[Array, ""]) -> Place:
    """Random numbers at a random time.

    Every environment has its own time, so that among many some episode ends at nearly
    every step, and no library may reckon with ends that never come.
    """
    numbers, time = jr.split(key)
    return Place(
        jr.normal(numbers, (OBSERVATION_SIZE,), jnp.float32),
        jr.randint(time, (), 0, EPISODE_LENGTH, jnp.int32),
    )


def move(
    place: Place, action: Float[Array, "8"]
) -> tuple[Place, Float[Array, ""], Bool[Array, ""]]:
    """Turns the ring by eight numbers.

    **Arguments:**

    - `place`: where the environment stands.
    - `action`: best is half of the first eight numbers.

    **Returns:**

    `(place, reward, ended)`, the reward minus the mean squared error of the action.
    """
    error = action - 0.5 * place.numbers[:ACTION_SIZE]
    time = place.time + 1
    moved = Place(jnp.roll(place.numbers, -ACTION_SIZE), time)
    return moved, -jnp.mean(jnp.square(error)), time >= EPISODE_LENGTH


@final
class Ring(eqx.Module):
    """The environment as this library sees it."""

    observation_size = OBSERVATION_SIZE
    action_size = ACTION_SIZE
    discrete = False
    max_episode_length = EPISODE_LENGTH

    def reset(self, key: Key[Array, ""]) -> State:
        """Starts an episode."""
        place = start(key)
        return State.create(
            place, place.numbers, jnp.float32(0), terminated=False, truncated=False
        )

    def step(self, state: State, action: Float[Array, "8"]) -> State:
        """Turns the ring."""
        place, reward, ended = move(state.data, action)
        return State.create(
            place, place.numbers, reward, terminated=ended, truncated=False
        )
