"""Which arrays of a network train."""

import functools as ft
from collections.abc import Callable
from typing import Any, final, Generic, TypeAlias, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.tree_util as jtu
import numpy as np
from jax.core import Tracer
from jaxtyping import Array
from numpy.typing import NDArray

from .._expect import is_real
from .._tree import shape_text
from ._errors import CompositionError


Value = TypeVar("Value")
Network = TypeVar("Network")


@final
class NonTrainable(eqx.Module, Generic[Value]):
    """Holds arrays that an optimiser must not touch: statistics, constants, masks.

    Everything else that is a floating-point array trains. `stop_gradient` would not
    do: weight decay moves a parameter whose gradient is 0.

    **Example:**

    ```python
    class Bias(StatelessModule[Features, Features]):
        learned: Float[Array, " size"]
        fixed: NonTrainable[Float[Array, " size"]]
    ```
    """

    value: Value


Coefficient: TypeAlias = float | NonTrainable[Array]
"""A number that a user sets and training never moves."""


def coefficient(
    value: int | float | Array | NDArray[Any] | np.generic | NonTrainable[Array],
    *,
    name: str = "a coefficient",
) -> Coefficient:
    """Converts the number of a field such as `kl_weight`.

    **Arguments:**

    - `value`: a number, or an array to map over in a sweep.
    - `name`: of the field, for the message.

    **Returns:**

    A `float`, or the array kept out of training: as a plain leaf it would train, and
    a weight of the loss would be trained away.

    **Raises:**

    `TypeError` for anything else.
    """
    if isinstance(value, NonTrainable):
        return value
    if not is_real(value):
        raise TypeError(f"{name} must be a number or an array, got {value!r}")
    if isinstance(value, jax.Array) or np.ndim(value):
        return NonTrainable(jnp.asarray(value))
    return float(value)


def converted(name: str) -> Callable[[Any], Coefficient]:
    """What converts the field called `name`, so that an array in it does not train."""
    return ft.partial(coefficient, name=name)


def contents(value: Any) -> Any:
    """What is inside, if it is kept from training."""
    return value.value if isinstance(value, NonTrainable) else value


def known(value: Any, name: str = "a coefficient") -> NDArray[Any]:
    """Numbers as they will be computed with; none where any is being traced.

    **Arguments:**

    - `value`: a number or several, kept from training or not.
    - `name`: of the field, for the message.

    **Raises:**

    `TypeError` for what is no number, nor several.
    """
    inside = contents(value)
    if any(isinstance(leaf, Tracer) for leaf in jtu.tree_leaves(inside)):
        return np.zeros(0, np.float32)
    try:
        given = np.asarray(inside)
    except (TypeError, ValueError):
        given = None
    if given is None or not is_real(given):
        raise TypeError(
            f"{name} must be a number or an array of numbers, got {inside!r}"
        )
    with np.errstate(over="ignore"):
        return given.astype(np.float32)


def number(
    value: Coefficient, name: str = "a coefficient", dtype: Any = jnp.float32
) -> float | Array:
    """The one number in a field that `coefficient` has converted.

    **Arguments:**

    - `value`: as in the field.
    - `name`: of the field, for the message.
    - `dtype`: of an array; a wider one would make all that it meets as wide.

    **Raises:**

    `CompositionError` for an array of several, which would be taken for one number
    per environment, or per feature.
    """
    if isinstance(value, float):
        return value
    array = jnp.asarray(contents(value))
    if array.ndim:
        raise CompositionError(
            f"expected {name} to be one number, got an array {shape_text(array)}; map "
            "over several with equinox.filter_vmap"
        )
    return array.astype(dtype)


def expect_positive(**coefficients: Coefficient) -> None:
    """Raises `ValueError`, by name, for a number that is not above 0.

    **Arguments:**

    - `coefficients`: by name, as `coefficient` has converted them.
    """
    for name, value in coefficients.items():
        if not np.all(known(value, name) > 0):
            raise ValueError(f"{name} must be greater than 0, got {contents(value)}")


def _is_non_trainable(node: Any) -> bool:
    return isinstance(node, NonTrainable)


def partition_trainable(network: Network) -> tuple[Network, Network]:
    """Splits a network into what trains and the rest.

    **Arguments:**

    - `network`: any tree.

    **Returns:**

    `(parameters, rest)`, both shaped as the network with `None` in the place of
    what went to the other. `parameters` holds the inexact arrays that sit outside
    every `NonTrainable`; `equinox.combine(parameters, rest)` is the network again.
    """

    def trains(node: Any) -> bool:
        return not _is_non_trainable(node) and eqx.is_inexact_array(node)

    return eqx.partition(
        network,
        jtu.tree_map(trains, network, is_leaf=_is_non_trainable),
    )
