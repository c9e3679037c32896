"""Times matrix products by themselves: how fast the device is at just their shapes."""

import functools as ft
import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from .products import Operation, Product
from .timing import best, feeding_back


_SECONDS = 0.05
"""For how long each order of each operation is tried."""

_BYTES = 2**22
_RUNS = 32
"""So many are timed in one call, or as many as fit into these bytes, but one at the
least: what a program multiplies has often just been computed and lies in a cache."""


def seconds_alone(found: Sequence[Product]) -> float:
    """Seconds that the products of a program take when there is nothing else.

    **Arguments:**

    - `found`: the products.

    **Returns:**

    The sum over all of their runs. Each operation is timed once in a process.
    """
    return math.fsum(
        one.runs * _seconds_of(one.operation, bool(one.loops)) for one in found
    )


@ft.cache
def _seconds_of(operation: Operation, is_in_loop: bool) -> float:
    seconds = _seconds_in_a_loop if is_in_loop else _seconds_of_copies
    return min(map(seconds, _orders(operation)))


def _orders(operation: Operation) -> tuple[Operation, ...]:
    """The operation, and its transpose where it is a product of matrices.

    A compiler may run either, and what it runs need not be what was written.
    """
    if operation.primitive.name != "dot_general":
        return (operation,)
    parameters = dict(operation.parameters)
    (left, right), (left_batch, right_batch) = parameters["dimension_numbers"]
    parameters["dimension_numbers"] = ((right, left), (right_batch, left_batch))
    if isinstance(parameters["precision"], tuple):
        parameters["precision"] = parameters["precision"][::-1]
    transpose = operation._replace(
        operands=operation.operands[::-1], parameters=tuple(parameters.items())
    )
    return (operation, transpose)


def _seconds_in_a_loop(operation: Operation) -> float:
    """One after the other: each needs a number of the last result, and waits for it.

    A CPU's cores can share copies of a small product, but not a single one.
    """
    left, right = (_ones(operand) for operand in operation.operands)
    runs = _runs_of(operation)

    def multiply(arrays: Any, right: Any) -> tuple[Any, None]:
        def step(arrays: Any, _: None) -> tuple[Any, None]:
            left, last = arrays
            first = last[(0,) * last.ndim].astype(left.dtype)
            left = left.at[(0,) * left.ndim].set(first)
            return (left, operation(left, right)), None

        return jax.lax.scan(step, arrays, length=runs)

    arrays = (left, _ones(operation.result))
    compiled = jax.jit(multiply, donate_argnums=0).lower(arrays, right).compile()
    return best(feeding_back(compiled, arrays, right), seconds=_SECONDS) / runs


def _seconds_of_copies(operation: Operation) -> float:
    """Several copies in one program, so that the call itself hardly counts."""
    left, right = operation.operands
    result = operation.result
    copies = _runs_of(operation)

    def multiply(last: Any, lefts: Any, right: Any) -> tuple[Any, None]:
        # The results take the memory of the last ones, which nobody reads.
        del last
        return [operation(*_kept_apart(left, right)) for left in lefts], None

    arguments = (
        [_ones(result) for _ in range(copies)],
        [_ones(left) for _ in range(copies)],
        _ones(right),
    )
    compiled = (
        jax.jit(multiply, donate_argnums=0, keep_unused=True)
        .lower(*arguments)
        .compile()
    )
    return best(feeding_back(compiled, *arguments), seconds=_SECONDS) / copies


def _runs_of(operation: Operation) -> int:
    """How often an operation runs in one timed call."""
    left, _ = operation.operands
    size = _bytes_of(left) + _bytes_of(operation.result)
    return min(_RUNS, max(1, _BYTES // size))


def _ones(array: jax.ShapeDtypeStruct) -> jax.Array:
    # NumPy need not compile anything for each shape.
    return jnp.array(np.ones(array.shape, array.dtype))


def _kept_apart(left: Any, right: Any) -> tuple[Any, Any]:
    """Keeps a compiler from making one large product of several with one operand."""
    return jax.lax.optimization_barrier((left, right))


def _bytes_of(array: jax.ShapeDtypeStruct) -> int:
    return array.size * array.dtype.itemsize
