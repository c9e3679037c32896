"""Counts matrix products in a jaxpr: what a program cannot do without."""

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

from jax.extend.core import jaxprs_in_params
from jax.interpreters.partial_eval import dce_jaxpr


class Product(NamedTuple):
    """One `dot_general` or convolution.

    - `flops`: of all of its runs.
    - `loops`: names of the loops around it, the outermost first.
    """

    flops: float
    loops: tuple[str, ...]


def products(jaxpr: Any, *, trips: int = 1) -> list[Product]:
    """Every matrix product of a program.

    **Arguments:**

    - `jaxpr`: the program, closed or not.
    - `trips`: how often a `while` loop runs, which its jaxpr does not say.

    **Returns:**

    The products that the results depend on. Of the branches of a `cond` only the
    cheapest is counted.
    """
    opened = getattr(jaxpr, "jaxpr", jaxpr)
    needed, _ = dce_jaxpr(opened, [True] * len(opened.outvars))
    return list(_products(needed, 1.0, (), trips))


def flops(jaxpr: Any, *, trips: int = 1) -> float:
    """Multiplications and additions in all of the `products`."""
    return math.fsum(one.flops for one in products(jaxpr, trips=trips))


def _products(
    jaxpr: Any, runs: float, loops: tuple[str, ...], trips: int
) -> Iterator[Product]:
    for equation in getattr(jaxpr, "jaxpr", jaxpr).eqns:
        name = equation.primitive.name
        if name == "dot_general":
            yield Product(runs * _flops_of_dot(equation), loops)
        elif name == "conv_general_dilated":
            yield Product(runs * _flops_of_convolution(equation), loops)
        elif name == "cond":
            branches = [
                list(_products(branch, runs, loops, trips))
                for branch in equation.params["branches"]
            ]
            yield from min(branches, key=lambda all_: sum(one.flops for one in all_))
        elif name in ("scan", "while"):
            length = equation.params["length"] if name == "scan" else trips
            for inner in _jaxprs_in(equation):
                yield from _products(inner, runs * length, (*loops, name), trips)
        else:
            for inner in _jaxprs_in(equation):
                yield from _products(inner, runs, loops, trips)


def _jaxprs_in(equation: Any) -> list[Any]:
    return list(jaxprs_in_params(equation.params))


def _flops_of_dot(equation: Any) -> float:
    left, right = (variable.aval.shape for variable in equation.invars)
    (_, contracted), (_, batched) = equation.params["dimension_numbers"]
    columns = [
        size
        for axis, size in enumerate(right)
        if axis not in contracted and axis not in batched
    ]
    return 2.0 * math.prod(left) * math.prod(columns)


def _flops_of_convolution(equation: Any) -> float:
    kernel = equation.invars[1].aval.shape
    out = equation.outvars[0].aval.shape
    features = kernel[equation.params["dimension_numbers"].rhs_spec[0]]
    return 2.0 * math.prod(out) * math.prod(kernel) / features
