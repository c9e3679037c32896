"""Compiles what will run a few times only."""

import functools as ft
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import jax
import jax.tree_util as jtu
import numpy as np


Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")

# A law runs a function a handful of times, so compiling it is all of the cost; without
# optimisation that takes half as long.
_OPTIONS: dict[str, str | bool] = {"xla_backend_optimization_level": "0"}


def unoptimised(
    function: Callable[Parameters, Result],
) -> Callable[Parameters, Result]:
    """As `equinox.filter_jit`, for a function that runs a few times only.

    Arrays are traced and everything else is static.

    **Arguments:**

    - `function`: takes trees as positional arguments and returns a tree of arrays.
    """

    @ft.partial(jax.jit, static_argnums=0, compiler_options=_OPTIONS)
    def run(static: Any, arrays: list[Any]) -> Any:
        structure, fixed = static
        leaves = [
            array if kind is None else value
            for array, (kind, value) in zip(arrays, fixed, strict=True)
        ]
        return function(*jtu.tree_unflatten(structure, leaves))  # pyright: ignore

    @ft.wraps(function)
    def call(*arguments: Parameters.args, **_: Parameters.kwargs) -> Result:
        leaves, structure = jtu.tree_flatten(arguments)
        arrays = [leaf if _is_array(leaf) else None for leaf in leaves]
        # With its type, since 1, 1.0 and True are equal.
        fixed = tuple(
            (None, None) if _is_array(leaf) else (type(leaf), leaf) for leaf in leaves
        )
        return run((structure, fixed), arrays)

    return call


def _is_array(leaf: Any) -> bool:
    return isinstance(leaf, jax.Array | np.ndarray | np.generic)
