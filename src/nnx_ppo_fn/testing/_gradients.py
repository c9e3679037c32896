"""Gradients of modules, and how two of them are compared."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax.numpy as jnp
import jax.tree_util as jtu
import numpy as np
from jaxtyping import Array, Float

from ..networks._trainable import partition_trainable
from ..networks.types import AnyModule
from ._compare import Difference, tolerance


# Gradients are sums over time and batch, whose rounding adds up.
_GRADIENT_SLACK = 20.0
_GRADIENT_ROUNDINGS = 8.0


def split_differentiable(
    module: AnyModule, state: Any, x: Any
) -> tuple[Any, Callable[[Any], tuple[AnyModule, Any, Any]]]:
    parameters, rest = partition_trainable(module)
    (free_state, free_x), fixed = eqx.partition((state, x), eqx.is_inexact_array)

    def build(differentiable: Any) -> tuple[AnyModule, Any, Any]:
        module = eqx.combine(differentiable["parameters"], rest)
        joined = eqx.combine((differentiable["state"], differentiable["x"]), fixed)
        return module, *joined

    return {"parameters": parameters, "state": free_state, "x": free_x}, build


def weighted_sum(tree: Any) -> Float[Array, ""]:
    """One number that every floating-point number of a tree moves differently."""
    total = jnp.zeros((), jnp.float32)
    for leaf in jtu.tree_leaves(tree):
        if eqx.is_inexact_array(leaf):
            weights = jnp.cos(1.0 + jnp.arange(leaf.size, dtype=jnp.float32))
            total = total + jnp.vdot(weights, leaf.astype(jnp.float32).reshape(-1))
    return total


def largest(tree: Any) -> float:
    return max(
        (float(np.max(np.abs(leaf), initial=0.0)) for leaf in jtu.tree_leaves(tree)),
        default=0.0,
    )


def gradient_difference(expected: Any, found: Any) -> Difference | None:
    """As `difference`, with a scale that small leaves share with large ones."""
    floor = 1e-3 * largest(expected)
    # What passes through one coarse layer is coarse everywhere.
    roundings = [jnp.finfo(leaf.dtype).eps for leaf in jtu.tree_leaves(expected)]
    relative = max(
        _GRADIENT_SLACK * tolerance(jnp.float32),
        _GRADIENT_ROUNDINGS * float(max(roundings, default=0.0)),
    )
    pairs = zip(
        jtu.tree_leaves_with_path(expected), jtu.tree_leaves(found), strict=True
    )
    for (path, old), new in pairs:
        old, new = np.asarray(old, np.float64), np.asarray(new, np.float64)
        allowed = relative * max(largest(old), floor)
        off = np.abs(old - new)
        if np.any(off > allowed):
            place = np.unravel_index(int(np.argmax(off)), off.shape)
            return Difference(
                jtu.keystr(path), 0, float(off[place]), str(old[place]), str(new[place])
            )
    return None
