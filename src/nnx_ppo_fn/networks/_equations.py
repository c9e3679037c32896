"""Runs the equations of a jaxpr one by one, and tells what they do."""

import functools as ft
from collections.abc import Callable, Iterable, Mapping
from typing import Any, final, NamedTuple

import jax
from jax.extend.core import Literal
from jaxtyping import Array

from .._tree import is_key


@final
class _Activation(NamedTuple):
    """A function whose derivative can be told by its result.

    - `function`: of JAX.
    - `slope`: the derivative, given the result.
    """

    function: Callable[[Any], Array]
    slope: Callable[[Any], Array]


_ACTIVATIONS = {
    "tanh": _Activation(jax.lax.tanh, lambda result: (1 + result) * (1 - result)),
    "logistic": _Activation(jax.lax.logistic, lambda result: result * (1 - result)),
}
"""By the name of the primitive."""


_VIEWS = ("broadcast_in_dim", "reshape", "squeeze")


def is_view(equation: Any) -> bool:
    """Whether the result repeats or arranges the numbers of its one operand."""
    if equation.primitive.name == "reduce_sum":
        # Over axes of size 1, as the gradient of a new axis.
        return keeps_order(equation, equation.invars[0])
    return equation.primitive.name in _VIEWS and len(equation.invars) == 1


def keeps_order(equation: Any, operand: Any) -> bool:
    """Whether a view of an operand, or a sum with others, has its numbers in a row."""
    # A reshape may transpose as well.
    is_transposed = equation.params.get("dimensions") is not None
    is_whole = operand.aval.size == equation.outvars[0].aval.size
    return is_whole and not is_transposed


def variables(atoms: Iterable[Any]) -> list[Any]:
    """All of them that are no literals."""
    return [atom for atom in atoms if not isinstance(atom, Literal)]


def read(values: Mapping[Any, Any], atoms: Iterable[Any]) -> list[Any]:
    """The values of variables and literals."""
    return [atom.val if isinstance(atom, Literal) else values[atom] for atom in atoms]


def evaluated(equation: Any, operands: list[Any]) -> list[Any]:
    """The results of an equation, as JAX's own interpreter computes them."""
    primitive = equation.primitive
    bound = primitive.get_bind_params(equation.params)
    # Before JAX 0.10, functions were a value of their own.
    functions, parameters = bound if isinstance(bound, tuple) else ((), bound)
    with equation.ctx.manager:
        results = primitive.bind(*functions, *operands, **parameters)
    return list(results) if primitive.multiple_results else [results]


def evaluated_for_gradients(equation: Any, operands: list[Any]) -> list[Any]:
    """The results of an equation, for whose gradient little has to be kept."""
    name, parameters = equation.primitive.name, equation.params
    if name in _ACTIVATIONS and parameters.get("accuracy") is None:
        return [_activated(name, operands[0])]
    # What is inside of a `jax.jit` would be one thing, of which nothing is a view. By
    # the names of those that draw, `check_module` knows what a key is used for.
    if name == "jit" and not any(map(is_key, operands)):
        return _inlined(parameters["jaxpr"], operands)
    return evaluated(equation, operands)


def _inlined(function: Any, operands: list[Any]) -> list[Any]:
    """The results of a closed jaxpr."""
    given = (*function.jaxpr.constvars, *function.jaxpr.invars)
    values = dict(zip(given, (*function.consts, *operands), strict=True))
    for equation in function.jaxpr.eqns:
        results = evaluated_for_gradients(equation, read(values, equation.invars))
        values.update(zip(equation.outvars, results, strict=True))
    return read(values, function.jaxpr.outvars)


@ft.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _activated(name: str, x: Array) -> Array:
    """As JAX's own, whose gradient keeps two arrays where the result is enough."""
    return _ACTIVATIONS[name].function(x)


def _activated_forward(name: str, x: Array) -> tuple[Array, Array]:
    result = _ACTIVATIONS[name].function(x)
    return result, result


def _activated_backward(name: str, result: Array, cotangent: Array) -> tuple[Array]:
    return (cotangent * _ACTIVATIONS[name].slope(result),)


_activated.defvjp(_activated_forward, _activated_backward)
