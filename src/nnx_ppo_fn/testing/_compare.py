"""Compares trees row by row: exactly where bits can be exact, else to a tolerance."""

import dataclasses
import math
from typing import Any, final

import jax
import jax.numpy as jnp
import jax.random as jr
import jax.tree_util as jtu
import numpy as np
from numpy.typing import NDArray

from .._tree import is_key


@final
@dataclasses.dataclass(frozen=True)
class Difference:
    """The largest difference in the first leaf in which two trees differ.

    - `leaf`: the path of the leaf that differs.
    - `environment`: the row in which it differs.
    - `size`: by how much, or `None` for keys, whose distance means nothing.
    - `expected`, `found`: the two numbers, for an error message.
    """

    leaf: str
    environment: int
    size: float | None
    expected: str
    found: str

    def __str__(self) -> str:
        return f"expected {self.expected}, got {self.found}"


def tolerance(dtype: Any) -> float:
    """How far apart two numbers near 1 may be: 1e-4 in `float32`.

    Wide enough for sums that are taken in another order, which a different batch
    size is enough for, and far below any difference that a broken law makes. Not
    narrower in `float64`: modules compute in `float32`, whatever they return.
    """
    return max(float(jnp.finfo(kind).eps) for kind in (dtype, jnp.float32)) ** 0.58


def difference(
    expected: Any, found: Any, *, batch_axis: int = 0, slack: float = 1.0
) -> Difference | None:
    """The first leaf in which two trees of the same structure differ, if one does.

    Keys, integers and booleans must agree bit for bit. Floating-point numbers may be
    off by `slack * tolerance` of the largest number of their leaf.

    **Arguments:**

    - `expected`, `found`: trees of the same structure and shapes.
    - `batch_axis`: the axis that counts environments.
    - `slack`: a factor on the tolerance.
    """
    pairs = zip(
        jtu.tree_leaves_with_path(expected), jtu.tree_leaves(found), strict=True
    )
    for (path, old), new in pairs:
        different = _of_leaf(jtu.keystr(path), old, new, batch_axis, slack)
        if different is not None:
            return different
    return None


def bits(leaf: Any) -> NDArray[Any]:
    """An array's bits as unsigned bytes, one more axis than the array has."""
    values = np.ascontiguousarray(jr.key_data(leaf) if is_key(leaf) else leaf)
    shape: tuple[int, ...] = leaf.shape
    words = math.prod(values.shape[len(shape) :])
    return values.reshape((*shape, words)).view(np.uint8)


def differing_bits(expected: Any, found: Any) -> Difference | None:
    """The first leaf whose bits differ between two trees of the same structure."""
    pairs = zip(
        jtu.tree_leaves_with_path(expected), jtu.tree_leaves(found), strict=True
    )
    for (path, old), new in pairs:
        unequal = np.any(bits(old) != bits(new), axis=-1)
        if np.any(unequal):
            return _report(jtu.keystr(path), old, new, unequal, None, 0)
    return None


def take_rows(tree: Any, rows: NDArray[Any] | int | slice) -> Any:
    """The rows of every leaf `[B, ...]`, or the steps of every leaf `[T, B, ...]`.

    Numbers go through NumPy, which has nothing to compile.
    """
    return jtu.tree_map(
        lambda leaf: (
            leaf[rows] if is_key(leaf) else jnp.asarray(np.asarray(leaf)[rows])
        ),
        tree,
    )


def _of_leaf(
    path: str, old: Any, new: Any, batch_axis: int, slack: float
) -> Difference | None:
    if is_key(old) or not jnp.issubdtype(old.dtype, jnp.inexact):
        unequal = np.any(bits(old) != bits(new), axis=-1)
        return _report(path, old, new, unequal, None, batch_axis)
    wide = np.complex128 if jnp.iscomplexobj(old) else np.float64
    expected, found = np.asarray(old).astype(wide), np.asarray(new).astype(wide)
    finite = np.isfinite(expected) & np.isfinite(found)
    same = (expected == found) | (np.isnan(expected) & np.isnan(found))
    distance = np.where(same, 0.0, np.inf)
    distance[finite] = np.abs(expected[finite] - found[finite])
    scale = max(np.max(np.abs(expected[finite]), initial=0.0), _SMALLEST_SCALE)
    unequal = distance > slack * tolerance(old.dtype) * scale
    return _report(path, old, new, unequal, distance, batch_axis)


# Below this, numbers are taken to be what rounding has left of larger ones.
_SMALLEST_SCALE = 1e-2


def _report(
    path: str,
    old: Any,
    new: Any,
    unequal: NDArray[Any] | np.bool_,
    distance: NDArray[Any] | None,
    batch_axis: int,
) -> Difference | None:
    if not np.any(unequal):
        return None
    weight = unequal if distance is None else np.where(unequal, distance, -1.0)
    place = np.unravel_index(int(np.argmax(weight)), unequal.shape)
    size = None if distance is None else float(distance[place])
    environment = int(place[batch_axis]) if len(place) > batch_axis else 0
    return Difference(path, environment, size, _show(old[place]), _show(new[place]))


def _show(value: jax.Array) -> str:
    return str(np.asarray(jr.key_data(value) if is_key(value) else value))
