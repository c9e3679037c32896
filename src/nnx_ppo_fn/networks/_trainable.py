"""Which arrays of a network train."""

from typing import Any, final, Generic, TypeVar

import equinox as eqx
import jax.tree_util as jtu


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
