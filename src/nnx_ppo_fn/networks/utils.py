"""Modules that pick from trees of arrays, and put them together."""

import math
from collections.abc import Callable, Mapping
from typing import Any, cast, final, TypeAlias

import equinox as eqx
import jax.numpy as jnp
import jax.tree_util as jtu
from jaxtyping import Array

from .._expect import as_count
from .._suggest import did_you_mean
from .._tree import (
    as_float,
    branches,
    canonical,
    entries,
    is_key,
    shape_text,
    tree_map,
)
from ._errors import CompositionError
from ._routing import batch_shape, expect_rows
from ._trainable import Coefficient, converted, number
from .containers import Map as Map, Merge as Merge
from .types import output, StatefulModuleOutput, StatelessModule


Path: TypeAlias = tuple[str | int, ...]
"""Keys and positions that lead to a part of a tree."""


@final
class Flattener(StatelessModule[Any, Any]):
    """Joins a tree of arrays into one array `[B, features]`.

    Every array is flattened but for its first axis; entries of a mapping come in the
    order of their sorted keys. Integers and booleans become `float32`.
    """

    preserve_levels: int = eqx.field(static=True)

    def __init__(self, preserve_levels: int = 0):
        """**Arguments:**

        - `preserve_levels`: how many levels of mappings, lists, tuples and other nodes
          stay; what is below them is joined.

        **Raises:**

        `ValueError` if it is negative, `TypeError` if it is not an integer.
        """
        self.preserve_levels = as_count(
            preserve_levels, name="preserve_levels", least=0
        )

    def __call__(
        self, state: tuple[()], x: Any, rollout_extras: Any = None
    ) -> StatefulModuleOutput[tuple[()], Any]:
        """Joins `x`, leaves `[B, ...]`."""
        x = canonical(x)
        leaves = expect_numbers(x)
        joined = _join_below(x, self.preserve_levels)
        return output(joined, batch=len(leaves[0]))


@final
class Filter(StatelessModule[Any, dict[str, Any]]):
    """Picks parts of a tree and names them; what is not named is dropped.

    **Example:**

    ```python
    Filter({"joints": ("body", "joint_angles"), "goal": "goal"})
    ```
    """

    parts: tuple[tuple[str, Path | Callable[[Any], Any]], ...] = eqx.field(static=True)

    def __init__(self, spec: Any):
        """**Arguments:**

        - `spec`: by the name of each output, what it is: a key of the input, a tuple
          of keys and positions that lead further down, or a function of the whole
          input.

        **Raises:**

        `CompositionError` if it is not such a mapping.
        """
        if not isinstance(spec, Mapping) or not spec:
            what = "an empty one" if isinstance(spec, Mapping) else repr(spec)
            raise CompositionError(
                f"Filter expects a mapping such as {{'goal': 'goal'}}, got {what}"
            )
        for name in cast(Mapping[Any, Any], spec):
            if not isinstance(name, str):
                raise CompositionError(
                    f"Filter names its outputs by strings, got {name!r}"
                )
        named = sorted(cast(Mapping[str, Any], spec).items())
        self.parts = tuple((name, _as_path(name, part)) for name, part in named)

    def __call__(
        self, state: tuple[()], x: Any, rollout_extras: Any = None
    ) -> StatefulModuleOutput[tuple[()], dict[str, Any]]:
        """Picks from `x`, leaves `[B, ...]`."""
        picked = {
            name: part(x) if callable(part) else _at(x, part)
            for name, part in self.parts
        }
        rows = batch_shape(x)
        expect_rows(picked, rows)
        return output(picked, batch=rows[0])


@final
class Scale(StatelessModule[Any, Any]):
    """Multiplies every number of a tree by a factor that is not trained.

    Floats keep their dtype; integers and booleans become `float32`. A mapping comes
    out as a `dict`.
    """

    factor: Coefficient = eqx.field(converter=converted("factor"))

    def __call__(
        self, state: tuple[()], x: Any, rollout_extras: Any = None
    ) -> StatefulModuleOutput[tuple[()], Any]:
        """Scales `x`, leaves `[B, ...]`."""
        x = canonical(x)
        leaves = expect_numbers(x)

        def scaled(leaf: Array) -> Array:
            leaf = as_float(leaf)
            return leaf * number(self.factor, "factor", leaf.dtype)

        return output(tree_map(scaled, x), batch=len(leaves[0]))


def _join_below(tree: Any, levels: int, place: str = "x") -> Any:
    leaves = jtu.tree_leaves(tree)
    if not leaves:
        raise CompositionError(f"expected at least one array in {place}, got {tree!r}")
    if not levels:
        return jnp.concatenate([_features(leaf) for leaf in leaves], axis=-1)
    children, structure = branches(tree)
    if not children:
        raise CompositionError(
            f"expected {levels} more levels of mappings, lists or tuples to preserve, "
            f"got {type(tree).__name__}"
        )
    return structure.unflatten(
        _join_below(child, levels - 1, place + jtu.keystr((key,)))
        for key, child in children
    )


def expect_numbers(x: Any) -> list[Array]:
    """The leaves of `x`, if all of them are numbers `[B, ...]`.

    **Raises:**

    `CompositionError` that names the first leaf that is not, or tells the shapes of
    leaves that differ in `B`.
    """
    leaves = jtu.tree_leaves_with_path(x)
    if not leaves:
        raise CompositionError("expected at least one array, got an empty tree")
    for path, leaf in leaves:
        if is_key(leaf) or not getattr(leaf, "shape", ()):
            is_array = hasattr(leaf, "shape")
            what = shape_text(leaf) if is_array else type(leaf).__name__
            what = "random keys" if is_key(leaf) else what
            raise CompositionError(
                f"expected x{jtu.keystr(path)} to be numbers [B, ...], got {what}"
            )
    if len({leaf.shape[0] for _, leaf in leaves}) > 1:
        raise CompositionError(
            f"expected arrays of the same first axis, got {shape_text(x)}"
        )
    return [leaf for _, leaf in leaves]


def _features(leaf: Array) -> Array:
    return as_float(leaf).reshape((len(leaf), math.prod(leaf.shape[1:])))


def _as_path(name: str, part: Any) -> Path | Callable[[Any], Any]:
    if isinstance(part, str):
        return (part,)
    if callable(part):
        return part
    steps = cast(tuple[Any, ...], part) if isinstance(part, tuple) else ()
    if steps and all(type(step) in (str, int) for step in steps):
        return steps
    raise CompositionError(
        f"Filter's {name!r} must be a key, a tuple of keys and positions, or a "
        f"function, got {part!r}"
    )


def _at(tree: Any, path: Path) -> Any:
    for depth, step in enumerate(path):
        place = "".join(f"[{before!r}]" for before in path[:depth])
        parts: Mapping[Any, Any] | None = entries(tree)
        if parts is not None and (isinstance(step, str) or isinstance(tree, Mapping)):
            if step not in parts:
                hint = did_you_mean(str(step), map(str, parts))
                raise CompositionError(
                    f"x{place} has no entry {step!r}; it has "
                    f"{', '.join(map(repr, parts))}{hint}"
                )
            tree = parts[step]
        elif isinstance(tree, (list, tuple)) and isinstance(step, int):
            items = cast(tuple[Any, ...], tree)
            if not -len(items) <= step < len(items):
                raise CompositionError(
                    f"x{place} has {len(items)} entries, none at {step}"
                )
            tree = items[step]
        else:
            raise CompositionError(
                f"expected x{place} to have an entry {step!r}, got "
                f"{type(tree).__name__}"
            )
    return tree
