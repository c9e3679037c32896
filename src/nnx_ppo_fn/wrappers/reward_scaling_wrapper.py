"""Rewards in another unit."""

from typing import Any, final

import jax.numpy as jnp
from jaxtyping import Array, Key

from .._tree import as_float, tree_map
from ..envs.types import EnvState, RLEnv
from ._abstract_wrapper import AbstractWrapper, replace


@final
class RewardScalingWrapper(AbstractWrapper):
    """Multiplies all rewards by a number.

    Advantages are normalised, values are not: a critic learns best when returns are
    of the order of one.

    **Arguments:**

    - `env`: any environment whose state is a dataclass. If it has several rewards,
      all are scaled alike.
    - `reward_scale`: the factor.
    """

    env: RLEnv
    reward_scale: float | int

    @property
    def max_episode_length(self) -> int | None:
        """That of the environment inside; None if it does not say."""
        return getattr(self.env, "max_episode_length", None)

    def reset(self, key: Key[Array, ""]) -> EnvState:
        """Starts an episode.

        **Arguments:**

        - `key`: the source of all randomness in the episode.

        **Returns:**

        The first state.
        """
        return self._scale(self.env.reset(key))

    def step(self, state: Any, action: Any) -> EnvState:
        """Advances by one step.

        **Arguments:**

        - `state`: the previous state.
        - `action`: what the environment inside expects.

        **Returns:**

        The next state.
        """
        return self._scale(self.env.step(state, action))

    def _scale(self, state: EnvState) -> EnvState:
        def scaled(reward: Any) -> Array:
            array = as_float(jnp.asarray(reward))
            return array * jnp.asarray(self.reward_scale, array.dtype)

        return replace(state, reward=tree_map(scaled, state.reward))
