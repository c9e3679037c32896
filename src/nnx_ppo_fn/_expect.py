"""Refusals of arguments that are none of what they should be."""

import math
from typing import Any, SupportsIndex

import jax
import jax.numpy as jnp
import numpy as np


def expect_count(name: str, value: Any, *, least: int) -> None:
    """Raises `TypeError` or `ValueError` unless `value` is an integer, large enough."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} must be an integer, got {value!r}")
    if value < least:
        raise ValueError(f"{name} must be at least {least}, got {value}")


def as_count(value: SupportsIndex, *, name: str, least: int = 1) -> int:
    """An integer of Python or NumPy as an `int`; raises as `expect_count` does."""
    count: Any = int(value) if isinstance(value, np.integer) else value
    expect_count(name, count, least=least)
    return count


def as_shards(value: SupportsIndex, batch: int, what: str) -> int:
    """A count of equal groups of environments, as an `int`.

    **Arguments:**

    - `value`: an integer of Python or NumPy.
    - `batch`: how many environments there are.
    - `what`: has them, for the message.

    **Raises:**

    As `as_count`, and `ValueError` where `batch` is not a multiple of the count.
    """
    count = as_count(value, name="n_shards")
    if batch % count:
        raise ValueError(
            f"{what} of {batch} environments cannot be divided into n_shards={count} "
            f"equal groups; choose a divisor of {batch}"
        )
    return count


def expect_range(name: str, value: Any, least: float, most: float) -> None:
    """Raises `TypeError` or `ValueError` unless `value` is a number in a range.

    An array passes: in a sweep it may be a tracer without values.
    """
    if isinstance(value, jax.Array):
        return
    if isinstance(value, bool) or not isinstance(value, (int, float, np.generic)):
        raise TypeError(f"{name} must be a number or an array, got {value!r}")
    if not least <= float(value) <= most:
        bounds = f"at least {least}" if most == math.inf else f"in [{least}, {most}]"
        raise ValueError(f"{name} must be {bounds}, got {value}")


def expect_choice(name: str, value: Any, choices: tuple[str, ...]) -> None:
    """Raises `ValueError` unless `value` is one of the words `choices`."""
    if value not in choices:
        raise ValueError(
            f"{name} must be {' or '.join(map(repr, choices))}, got {value!r}"
        )


def expect_flags(**flags: Any) -> None:
    """Raises `TypeError` for a flag that is not a `bool`."""
    for name, value in flags.items():
        if not isinstance(value, bool):
            raise TypeError(f"{name} must be True or False, got {value!r}")


def is_real(value: Any) -> bool:
    """Whether `value` is a number, or an array of numbers, that are real."""
    dtype = getattr(value, "dtype", None)
    if dtype is None:
        return isinstance(value, int | float) and not isinstance(value, bool)
    kinds = (jnp.integer, jnp.floating)
    return any(jnp.issubdtype(dtype, kind) for kind in kinds)
