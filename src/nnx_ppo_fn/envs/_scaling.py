"""From a policy's actions, in [-1, 1], to those of an environment with other bounds."""

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float


def to_bounds(
    action: Float[Array, "..."], low: np.ndarray, high: np.ndarray
) -> Float[Array, "..."]:
    """Maps [-1, 1] linearly onto `[low, high]`; whatever lies outside is clipped.

    **Arguments:**

    - `action`: as many numbers as `low` has.
    - `low`, `high`: the bounds, of one shape, which is that of the result.
    """
    fraction = (jnp.clip(action, -1.0, 1.0).reshape(low.shape) + 1) / 2
    return jnp.asarray(low) + fraction * jnp.asarray(high - low)
