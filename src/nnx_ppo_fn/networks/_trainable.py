"""Which arrays of a network train."""

from typing import Any, final, Generic, TypeAlias, TypeVar

import equinox as eqx
import jax
import jax.tree_util as jtu
from jaxtyping import Array


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


def coefficient(value: int | float | Array | NonTrainable[Array]) -> Coefficient:
    """Converts the number of a field such as `kl_weight`.

    **Arguments:**

    - `value`: a number, or an array to map over in a sweep.

    **Returns:**

    A `float`, or the array kept out of training: as a plain leaf it would train, and
    a weight of the loss would be trained away.
    """
    if isinstance(value, NonTrainable):
        return value
    if isinstance(value, jax.Array):
        return NonTrainable(value)
    return float(value)


def number(value: Coefficient) -> float | Array:
    """The number in a field that `coefficient` has converted."""
    return value.value if isinstance(value, NonTrainable) else value


def expect_positive(**coefficients: Coefficient) -> None:
    """Raises `ValueError` for a number that is not above 0; arrays are not looked at.

    **Arguments:**

    - `coefficients`: by name, as `coefficient` has converted them.
    """
    for name, value in coefficients.items():
        if isinstance(value, float) and not value > 0:
            raise ValueError(f"{name} must be greater than 0, got {value:g}")


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
