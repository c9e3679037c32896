"""Finds the matrix products in a jaxpr: what a program cannot do without."""

import math
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import jax
from jax.extend.core import jaxprs_in_params
from jax.interpreters.partial_eval import dce_jaxpr


class Operation(NamedTuple):
    """A matrix product or convolution; equal ones are the same work.

    - `primitive`: JAX's `dot_general` or `conv_general_dilated`.
    - `operands`: shapes and types of left and right, or of image and kernel.
    - `parameters`: of the primitive by name, dimension numbers among them.
    """

    primitive: Any
    operands: tuple[jax.ShapeDtypeStruct, jax.ShapeDtypeStruct]
    parameters: tuple[tuple[str, Any], ...]

    def __call__(self, left: Any, right: Any) -> Any:
        """Runs it."""
        return self.primitive.bind(left, right, **dict(self.parameters))

    @property
    def result(self) -> jax.ShapeDtypeStruct:
        """Shape and type of what comes out."""
        return jax.eval_shape(lambda *operands: self(*operands), *self.operands)

    @property
    def flops(self) -> float:
        """Multiplications and additions."""
        left, right = (operand.shape for operand in self.operands)
        numbers = dict(self.parameters)["dimension_numbers"]
        if self.primitive.name == "dot_general":
            (contracted, _), _ = numbers
            summed = math.prod(left[axis] for axis in contracted)
        else:
            summed = math.prod(right) / right[numbers.rhs_spec[0]]
        return 2.0 * self.result.size * summed


class Product(NamedTuple):
    """One place in a program where an `Operation` stands.

    - `operation`: which.
    - `runs`: how often it runs.
    - `loops`: names of the loops around it, the outermost first.
    """

    operation: Operation
    runs: int
    loops: tuple[str, ...]

    @property
    def flops(self) -> float:
        """Multiplications and additions of all of its runs."""
        return self.runs * self.operation.flops


def products(jaxpr: Any, *, trips: int = 1) -> list[Product]:
    """Every matrix product of a program.

    **Arguments:**

    - `jaxpr`: the program, closed or not.
    - `trips`: how often a `while` loop runs, which its jaxpr does not say.

    **Returns:**

    The products that the results depend on. Of the branches of a `cond` only the
    cheapest is counted.
    """
    return list(_products(jaxpr, 1, (), trips))


def flops_of(found: Iterable[Product]) -> float:
    """Multiplications and additions in some products."""
    return math.fsum(one.flops for one in found)


def _products(
    jaxpr: Any, runs: int, loops: tuple[str, ...], trips: int
) -> Iterator[Product]:
    opened = getattr(jaxpr, "jaxpr", jaxpr)
    # Again inside of loops, which JAX does not look into when it looks at a program.
    needed, _ = dce_jaxpr(opened, [True] * len(opened.outvars))
    for equation in needed.eqns:
        name = equation.primitive.name
        if name in ("dot_general", "conv_general_dilated"):
            yield Product(_operation_of(equation), runs, loops)
        elif name == "cond":
            branches = [
                list(_products(branch, runs, loops, trips))
                for branch in equation.params["branches"]
            ]
            yield from min(branches, key=flops_of)
        elif name in ("scan", "while"):
            length = equation.params["length"] if name == "scan" else trips
            for inner in _jaxprs_in(equation):
                yield from _products(inner, runs * length, (*loops, name), trips)
        else:
            for inner in _jaxprs_in(equation):
                yield from _products(inner, runs, loops, trips)


def _operation_of(equation: Any) -> Operation:
    left, right = (
        jax.ShapeDtypeStruct(variable.aval.shape, variable.aval.dtype)
        for variable in equation.invars
    )
    parameters = tuple(sorted(equation.params.items()))
    return Operation(equation.primitive, (left, right), parameters)


def _jaxprs_in(equation: Any) -> list[Any]:
    return list(jaxprs_in_params(equation.params))
