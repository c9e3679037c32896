"""The values that a walk through a jaxpr meets: keys by name, constants, unknowns."""

import functools as ft
from collections.abc import Callable, Sequence
from typing import Any, final, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np


Names: TypeAlias = Any
"""A NumPy array of `Name` objects, shaped as the array of keys."""

Value: TypeAlias = Any
"""`Names` for keys; a number, an array, `Deferred` or `Unknown` for the rest."""


@final
class Unknown:
    """A value that only a run can know; `raw_keys` if it is the bits of known keys."""

    def __init__(self, raw_keys: Names | None = None):
        self.raw_keys = raw_keys


@final
class Deferred:
    """A constant that is worked out once somebody asks for it."""

    def __init__(self, compute: Callable[[], Any]):
        self._compute = compute

    @ft.cached_property
    def value(self) -> Any:
        """The number or array."""
        return self._compute()


def are_names(value: Value) -> bool:
    """Whether a value stands for keys."""
    return isinstance(value, np.ndarray) and value.dtype == np.object_


def evaluate(value: Value) -> Any:
    """The number or array that a constant stands for; `None` if it is unknown."""
    if isinstance(value, Deferred):
        return value.value
    return None if isinstance(value, Unknown) else value


def row(x: Value, step: int) -> Value:
    """What a scan over `x` sees at one step."""
    if are_names(x):
        return np.asarray(x[step])
    if isinstance(x, Unknown):
        return Unknown()
    return Deferred(lambda: np.asarray(evaluate(x))[step])


def numbers(equation: Any, operands: list[Value]) -> list[Value]:
    """The results of an operation without keys: constants if its operands are."""
    if equation.effects or any(isinstance(o, Unknown) for o in operands):
        return [Unknown() for _ in equation.outvars]

    def compute(position: int) -> Any:
        return apply(equation, [evaluate(operand) for operand in operands])[position]

    return [
        Deferred(lambda position=position: compute(position))
        for position in range(len(equation.outvars))
    ]


def apply(equation: Any, operands: Sequence[Any]) -> list[Any]:
    """The results of one operation; the frequent ones without compiling anything."""
    parameters = equation.params
    operand: Any = operands[0] if operands else None
    match equation.primitive.name:
        case "slice":
            strides = parameters["strides"] or (1,) * np.ndim(operand)
            bounds = zip(
                parameters["start_indices"],
                parameters["limit_indices"],
                strides,
                strict=True,
            )
            return [np.asarray(operand)[tuple(slice(*bound) for bound in bounds)]]
        case "squeeze" | "reshape" | "expand_dims":
            return [np.reshape(operand, equation.outvars[0].aval.shape)]
        case "transpose":
            return [np.transpose(operand, parameters["permutation"])]
        case "concatenate":
            return [np.concatenate(operands, axis=parameters["dimension"])]
        case "stack":
            return [np.stack(operands, axis=parameters["axis"])]
        case _:
            with jax.ensure_compile_time_eval():
                results = equation.primitive.bind(
                    *map(jnp.asarray, operands), **parameters
                )
            several = equation.primitive.multiple_results
            return [
                np.asarray(result) for result in (results if several else [results])
            ]
