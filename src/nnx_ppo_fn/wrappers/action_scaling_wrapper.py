"""Actions in the units of the environment."""

from collections.abc import Sequence
from typing import Any, final, TypeAlias

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Key

from ..envs._scaling import to_bounds
from ..envs.types import EnvState, RLEnv
from ._abstract_wrapper import AbstractWrapper


Bound: TypeAlias = float | int | Sequence[float | int] | np.ndarray | Array
"""One number for the whole action, or one for each of its entries."""


@final
class ActionScalingWrapper(AbstractWrapper):
    """Maps a policy's actions, in [-1, 1], onto the bounds of an environment.

    -1 becomes the lower bound and 1 the upper one, linearly; whatever lies outside is
    clipped. What the environment receives is `float32`, or as wide as the action.

    **Arguments:**

    - `env`: an environment whose action is one array of floats.
    - `low`, `high`: the bounds that it expects.

    **Raises:**

    `ValueError` if a bound is not finite, or not below its counterpart.
    """

    env: RLEnv
    low: Any = eqx.field(static=True)
    high: Any = eqx.field(static=True)

    def __init__(self, env: RLEnv, low: Bound, high: Bound):
        self.env = env
        # Plain numbers, by which the wrapper compares and hashes.
        self.low = _plain(low)
        self.high = _plain(high)
        if not (np.isfinite(low).all() and np.isfinite(high).all()):
            raise ValueError(
                "ActionScalingWrapper needs finite bounds, got "
                f"low={self.low}, high={self.high}"
            )
        if not np.less(low, high).all():
            raise ValueError(
                "ActionScalingWrapper needs low below high, got "
                f"low={self.low}, high={self.high}"
            )

    @property
    def max_episode_length(self) -> int | None:
        """That of the environment inside; `None` if it does not say."""
        return getattr(self.env, "max_episode_length", None)

    def reset(self, key: Key[Array, ""]) -> EnvState:
        """Starts an episode.

        **Arguments:**

        - `key`: the source of all randomness in the episode.

        **Returns:**

        The first state.
        """
        return self.env.reset(key)

    def step(self, state: Any, action: Any) -> EnvState:
        """Advances by one step.

        **Arguments:**

        - `state`: the previous state.
        - `action`: floats in [-1, 1], in the shape that the environment inside
          expects.

        **Returns:**

        The next state.

        **Raises:**

        `TypeError` for integers and for actions in parts, which have no such bounds,
        and `ValueError` for an action of another shape than the bounds.
        """
        dtype = getattr(action, "dtype", None)
        if dtype is None or not jnp.issubdtype(dtype, jnp.floating):
            got = type(action).__name__ if dtype is None else f"an array of {dtype}"
            raise TypeError(
                "ActionScalingWrapper scales an action that is one array of floats, "
                f"got {got}; choices need no bounds, and of an action in parts the "
                "environment scales each"
            )
        wide = jnp.asarray(action, dtype if dtype == jnp.float64 else jnp.float32)
        try:
            low, high = (
                np.broadcast_to(np.asarray(bound, wide.dtype), wide.shape)
                for bound in (self.low, self.high)
            )
        except ValueError:
            raise ValueError(
                "ActionScalingWrapper has bounds for an action "
                f"{list(np.broadcast_shapes(np.shape(self.low), np.shape(self.high)))}"
                f", got {list(wide.shape)}"
            ) from None
        return self.env.step(state, to_bounds(wide, low, high))


def _plain(bound: Bound) -> Any:
    """A number, or tuples of numbers as deep as the bound has axes."""
    array = np.asarray(bound, np.float64)
    return tuple(map(_plain, array)) if array.ndim else float(array)
