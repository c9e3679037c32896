"""The ring with episodes that end as often as one likes, and with a costly reset.

What a restart costs depends on both, so both can be chosen here.
"""

from collections.abc import Callable, Mapping
from typing import final

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Int, Key

from nnx_ppo_fn.envs import State

from .ring import ACTION_SIZE, EPISODE_LENGTH, move, OBSERVATION_SIZE, Place, start


SETTLING = 20
"""Steps that a costly reset takes before the episode begins."""

SUBSTEPS = 8
"""Matrix products of a step of the costly environment."""


def _about(steps: int) -> Callable[[Key[Array, ""]], Int[Array, ""]]:
    """An episode that may end at any step, after so many on average.

    How long it has lasted says nothing of its end, so that the first rollout has as
    many ends as any other.
    """
    return lambda key: 1 + jnp.floor(steps * jr.exponential(key)).astype(jnp.int32)


LENGTHS: Mapping[str, Callable[[Key[Array, ""]], Int[Array, ""]]] = {
    "never": lambda _: jnp.int32(2**30),
    "seldom": _about(2560),
    "often": lambda key: EPISODE_LENGTH - jr.randint(key, (), 0, EPISODE_LENGTH),
    "always": _about(8),
    "together": lambda _: jnp.int32(8),
}
"""How many steps an episode has, by how often one ends: not within any rollout; one of
256 at about every tenth step; as on the benchmark's ring, at nearly every second step
some one of 256; each of them after about 8 steps at a time of its own, so that many end
at every step; and all of them at every eighth step."""


@final
class Episodes(eqx.Module):
    """A ring whose episodes end as `ends` says.

    - `ends`: one of `LENGTHS`.
    - `costly`: whether a step is like a simulator's, of several small products one
      after the other, and a reset like `SETTLING` such steps.
    """

    ends: str = eqx.field(static=True)
    costly: bool = eqx.field(static=True, default=False)

    observation_size = OBSERVATION_SIZE
    action_size = ACTION_SIZE
    discrete = False
    max_episode_length = None

    def reset(self, key: Key[Array, ""]) -> State:
        """Starts an episode."""
        place_key, length_key = jr.split(key)
        length = LENGTHS[self.ends](length_key)
        numbers = start(place_key).numbers
        if self.costly:
            numbers = _simulate(numbers, SETTLING * SUBSTEPS)
        place = Place(numbers, EPISODE_LENGTH - length)
        return State.create(
            place, numbers, jnp.float32(0), terminated=False, truncated=False
        )

    def step(self, state: State, action: Float[Array, "8"]) -> State:
        """Turns the ring."""
        place, reward, ended = move(state.data, action)
        if self.costly:
            place = place._replace(numbers=_simulate(place.numbers, SUBSTEPS))
        return State.create(
            place, place.numbers, reward, terminated=ended, truncated=False
        )


def _simulate(numbers: Float[Array, "64"], substeps: int) -> Float[Array, "64"]:
    """Rotates the numbers again and again, which leaves their distribution alone."""
    with jax.ensure_compile_time_eval():
        rotation = jr.orthogonal(jr.key(0), OBSERVATION_SIZE)
    return jax.lax.fori_loop(
        0, substeps, lambda _, numbers: rotation @ numbers, numbers
    )
