"""A time limit for any environment."""

from collections.abc import Mapping
from typing import Any, final

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Int, Key

from ..envs._checks import check_steps
from ..envs.types import EnvState, episode_flags, RLEnv, warn_of_time_out
from ._abstract_wrapper import AbstractWrapper, replace


@final
class EpisodeWrapper(AbstractWrapper):
    """Truncates every episode after a number of steps.

    Counts the steps of an episode in `info["step_counter"]`. At the limit
    `info["truncated"]` is set, and with it `done`. A step on which the environment
    inside ends the episode of its own accord counts as terminated, be it the last one
    allowed or not; a time limit of the environment inside remains one.

    **Arguments:**

    - `env`: any environment whose state is a dataclass.
    - `max_len`: the time limit in steps.
    - `random_phase`: whether each reset starts the count at a random step in
      `[0, max_len)` instead of 0. Environments that were started together are then
      not cut short together, at the price of shorter episodes.

    **Raises:**

    `TypeError` if `max_len` is no integer; `ValueError` if it is less than 1, or if
    `info` has a `"step_counter"` already.
    """

    env: RLEnv
    max_len: int = eqx.field(static=True)
    random_phase: bool = eqx.field(static=True, default=False)

    def __check_init__(self):
        check_steps(self, "max_len", self.max_len)

    @property
    def max_episode_length(self) -> int:
        """The time limit in steps, the earlier of this one and the one inside."""
        inside = getattr(self.env, "max_episode_length", None)
        return self.max_len if inside is None else min(self.max_len, inside)

    def reset(self, key: Key[Array, ""]) -> EnvState:
        """Starts an episode and its count.

        **Arguments:**

        - `key`: the source of all randomness in the episode.

        **Returns:**

        The first state.
        """
        counter = jnp.zeros((), jnp.int32)
        if self.random_phase:
            key, phase_key = jr.split(key)
            counter = jr.randint(phase_key, (), 0, self.max_len, jnp.int32)
        state = self.env.reset(key)
        warn_of_time_out(state)
        if "step_counter" in state.info:
            raise ValueError(
                "The info of the environment inside EpisodeWrapper already has a "
                "'step_counter'; use a single EpisodeWrapper, with the smaller limit"
            )
        return self._mark(state, counter)

    def step(self, state: Any, action: Any) -> EnvState:
        """Advances by one step.

        **Arguments:**

        - `state`: the previous state.
        - `action`: what the environment inside expects.

        **Returns:**

        The next state.
        """
        counter = state.info["step_counter"] + 1
        return self._mark(self.env.step(state, action), counter)

    def _mark(self, state: EnvState, counter: Int[Array, ""]) -> EnvState:
        done, truncated = episode_flags(state)
        terminated = done & ~truncated
        truncated = ~terminated & (truncated | (counter >= self.max_len))
        info: Mapping[str, Any] = {
            **state.info,
            "step_counter": counter,
            "terminated": terminated,
            "truncated": truncated,
        }
        done = (terminated | truncated).astype(jnp.asarray(state.done).dtype)
        return replace(state, done=done, info=info)
