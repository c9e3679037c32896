"""What samplers of numbers are made with, and what they read."""

from typing import Any, cast

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..._expect import is_real
from ..._tree import shape_text
from .._errors import CompositionError
from .._trainable import Coefficient, contents, known


def as_numbers(value: Any) -> Any:
    """A real number or array as it is, and a list or tuple of numbers as an array.

    **Raises:**

    `TypeError` for anything else, and `ValueError` for rows of different lengths.
    """
    if isinstance(value, list | tuple):
        return jnp.asarray([as_numbers(each) for each in cast(list[Any], value)])
    if not is_real(value):
        raise TypeError(f"expected real numbers, got {value!r}")
    return value


def expect_finite(**coefficients: Coefficient) -> None:
    """Raises `ValueError`, by name, for a coefficient that is infinite or NaN."""
    for name, value in coefficients.items():
        if not np.isfinite(known(value, name)).all():
            raise ValueError(f"{name} must be finite, got {contents(value)}")


def expect_scales(**coefficients: Coefficient) -> None:
    """Raises `ValueError`, by name, for one that is not above 0, or not finite."""
    for name, value in coefficients.items():
        numbers = known(value, name)
        if not np.all((numbers > 0) & np.isfinite(numbers)):
            raise ValueError(
                f"{name} must be greater than 0 and finite, got {contents(value)}"
            )


def halves(x: Any, meaning: str) -> tuple[Float[Array, "B n"], Float[Array, "B n"]]:
    """Two parameters for each component of an action, in `float32`.

    **Arguments:**

    - `x`: `[B, 2 * n]`, with `n` of at least 1.
    - `meaning`: of the halves, for the message.

    **Raises:**

    `CompositionError` for anything else.
    """
    shape = getattr(x, "shape", ())
    if len(shape) != 2 or shape[-1] % 2 or not shape[-1]:
        raise CompositionError(
            f"expected x [B, 2 * action_size] ({meaning}), got {shape_text(x)}"
        )
    first, second = jnp.split(jnp.asarray(x, jnp.float32), 2, axis=-1)
    return first, second
