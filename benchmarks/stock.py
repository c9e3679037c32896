"""Environments that carry starts for later with them."""

from typing import Any, final

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Key


@final
class Stocked(eqx.Module):
    """An environment's state, and a start beside it.

    - `state`: where the environment stands; it is what the rollout sees.
    - `start`: where an episode may begin.
    - `spent`: whether one has begun there.
    """

    state: Any
    start: Any
    spent: Bool[Array, "..."]

    @property
    def obs(self) -> Any:
        """The observation."""
        return self.state.obs

    @property
    def reward(self) -> Any:
        """The reward."""
        return self.state.reward

    @property
    def done(self) -> Any:
        """Whether the episode ended."""
        return self.state.done

    @property
    def info(self) -> dict[str, Any]:
        """Extra values by name."""
        return self.state.info

    @property
    def metrics(self) -> dict[str, Any]:
        """Values to log, by name."""
        return self.state.metrics


@final
class Stocking(eqx.Module):
    """An environment whose state is `Stocked`; restarting from it is another's part."""

    env: Any

    def reset(self, key: Key[Array, ""]) -> Stocked:
        """Starts the first episode, which spends its start."""
        state = self.env.reset(key)
        return Stocked(state, start=state, spent=jnp.asarray(True))

    def step(self, stocked: Stocked, action: Any) -> Stocked:
        """Takes a step, and the stock along."""
        state = self.env.step(stocked.state, action)
        return Stocked(state, stocked.start, stocked.spent)
