"""Operations on trees of arrays: selects, and the axes `T` and `B`."""

from collections.abc import Callable, Mapping
from typing import Any, cast, TypeVar

import jax
import jax.numpy as jnp
import jax.tree_util as jtu
from jaxtyping import Array, Bool, Int, Shaped


Tree = TypeVar("Tree")


def tree_map(function: Callable[..., Any], tree: Tree, *rest: Any) -> Tree:
    """`jax.tree.map` for a function that keeps the type of the tree."""
    return cast(Tree, jtu.tree_map(function, tree, *rest))


def select(mask: Bool[Array, "*rows"], on_true: Tree, on_false: Tree) -> Tree:
    """Picks each row, usually an environment's, from one of two trees.

    A select and never a product: what is not picked may be NaN. Leaves that are
    the same array in both trees are passed through.

    **Arguments:**

    - `mask`: which rows come from `on_true`.
    - `on_true`, `on_false`: trees of equal structure, leaves `[*rows, ...]`.
    """

    def pick(if_true: Array, if_false: Array) -> Array:
        if if_true is if_false:
            return if_true
        rows = mask.reshape(mask.shape + (1,) * (if_true.ndim - mask.ndim))
        return jnp.where(rows, if_true, if_false)

    return tree_map(pick, on_true, on_false)


@jax.custom_batching.custom_vmap
def anywhere(flags: Bool[Array, "..."]) -> Bool[Array, ""]:
    """Whether any flag is set, here or in a run that `jax.vmap` makes beside this one.

    For the predicate of a `lax.cond` that saves work where no flag is set. `jax.vmap`
    would turn the `cond` into a select, which pays for both branches at every step,
    unless all runs agree on the predicate. A branch may therefore be taken on behalf
    of another run, and must then leave this one's numbers as they are.
    """
    return jnp.any(flags)


@anywhere.def_vmap
def _(
    axis_size: int, in_batched: list[bool], flags: Bool[Array, "..."]
) -> tuple[Bool[Array, ""], bool]:
    return anywhere(flags), False


def merge_time(tree: Tree) -> Tree:
    """Leaves `[T, B, ...]` become `[T * B, ...]`."""
    return out_of_groups(tree)


def split_time(tree: Tree, shape: tuple[int, ...]) -> Tree:
    """Leaves `[T * B, ...]` become `[T, B, ...]`, with `(T, B) = shape`."""
    return tree_map(lambda leaf: leaf.reshape((*shape, *leaf.shape[1:])), tree)


def into_groups(tree: Tree, count: int, *, axis: int = 0) -> Tree:
    """An axis of every leaf becomes two: of `count` groups, and of neighbours in one.

    **Arguments:**

    - `axis`: of leaves whose size there is a multiple of `count`.
    """

    def divided(leaf: Any) -> Any:
        size = leaf.shape[axis] // count
        return leaf.reshape((*leaf.shape[:axis], count, size, *leaf.shape[axis + 1 :]))

    return tree_map(divided, tree)


def out_of_groups(tree: Tree, *, axis: int = 0) -> Tree:
    """The inverse of `into_groups`: two axes become one."""

    def together(leaf: Any) -> Any:
        size = leaf.shape[axis] * leaf.shape[axis + 1]
        return leaf.reshape((*leaf.shape[:axis], size, *leaf.shape[axis + 2 :]))

    return tree_map(together, tree)


def take(tree: Tree, indices: Int[Array, "*which"], *, axis: int) -> Tree:
    """Some rows of every leaf.

    **Arguments:**

    - `indices`: which rows, `[n]`; or which of each group of neighbours, where rows are
      in groups of the same size, `[groups, n]`. No row is then moved to another group.
    - `axis`: of the rows.
    """

    def some(leaf: Any, which: Any) -> Array:
        return jnp.take(leaf, which, axis=axis, mode="clip")

    def some_of_each(leaf: Any) -> Array:
        groups = into_groups(leaf, len(indices), axis=axis)
        taken = jax.vmap(some, in_axes=(axis, 0), out_axes=axis)(groups, indices)
        return out_of_groups(taken, axis=axis)

    if indices.ndim == 1:
        return tree_map(lambda leaf: some(leaf, indices), tree)
    return tree_map(some_of_each, tree)


def strong(tree: Tree) -> Tree:
    """The same values without weak types, which would compile everything twice."""

    def strengthen(leaf: Any) -> Array:
        leaf = leaf if isinstance(leaf, jax.Array) else jnp.asarray(leaf)
        return leaf if is_key(leaf) else jnp.asarray(leaf, dtype=leaf.dtype)

    return tree_map(strengthen, tree)


def canonical(tree: Any) -> Any:
    """Every mapping inside becomes a plain `dict` with sorted keys.

    JAX sorts the keys of a `dict` whenever it passes through a transformation, but
    not those of an `OrderedDict`; sorting at the border makes the order the same
    inside `jax.jit` and outside of it. It reaches into every node that JAX knows, and
    into mappings that it does not.
    """
    if isinstance(tree, Mapping):
        return {key: canonical(part) for key, part in _sorted(tree).items()}
    children, structure = branches(tree)
    if not children:
        return tree
    return structure.unflatten(canonical(child) for _, child in children)


def branches(tree: Any) -> tuple[list[tuple[Any, Any]], Any]:
    """The children of the node at the root of a tree, with their keys, and its kind.

    **Returns:**

    `(children, structure)`, where `children` are pairs of a key as in
    `jax.tree_util.KeyPath` and a child, and `structure.unflatten` makes a node of such
    children again. A leaf, such as an array, and a node without children have none.
    """
    paths, structure = jtu.tree_flatten_with_path(
        tree, is_leaf=lambda node: node is not tree
    )
    return [(path[0], child) for path, child in paths if path], structure


def by_path(
    tree: Any, name: str = "x", is_leaf: Callable[[Any], bool] | None = None
) -> dict[str, Any]:
    """The leaves of a tree called `name`, by names such as `x['speed']`."""
    leaves = jtu.tree_leaves_with_path(tree, is_leaf=is_leaf)
    return {name + jtu.keystr(path): leaf for path, leaf in leaves}


def _sorted(mapping: Mapping[Any, Any]) -> dict[Any, Any]:
    try:
        return {key: mapping[key] for key in sorted(mapping)}
    except TypeError:
        raise TypeError(
            "expected a mapping with keys that can be sorted, such as strings, got "
            f"{list(mapping)}"
        ) from None


def entries(tree: Any) -> dict[Any, Any] | None:
    """The parts of a tree that have names, by name.

    **Arguments:**

    - `tree`: a mapping of any kind, a named tuple, or a dataclass such as an
      `equinox.Module`.

    **Returns:**

    A `dict` in sorted order for a mapping, and in declared order otherwise, without
    static fields; `None` where parts have no names: in tuples, lists and arrays.
    """
    if isinstance(tree, Mapping):
        return _sorted(tree)
    children, _ = branches(tree)
    attributes = {
        key.name: child for key, child in children if isinstance(key, jtu.GetAttrKey)
    }
    return attributes if attributes else None


def as_float(leaf: Array) -> Array:
    """The same numbers; integers and booleans as `float32`."""
    inexact = jnp.issubdtype(leaf.dtype, jnp.inexact)
    return leaf if inexact else leaf.astype(jnp.float32)


def in_dtype_of(like: Array, leaf: Array) -> Array:
    """`leaf` in the dtype of `like`, unless that is one of whole numbers.

    They would cut off what is behind the point, and end every gradient there.
    """
    floating = jnp.issubdtype(like.dtype, jnp.floating)
    return leaf.astype(like.dtype) if floating else leaf


def is_key(leaf: Any) -> bool:
    """Whether a leaf is an array of typed random keys."""
    dtype = getattr(leaf, "dtype", None)
    return dtype is not None and jnp.issubdtype(dtype, jax.dtypes.prng_key)


def shape_text(x: Shaped[Array, "..."] | Any) -> str:
    """The shape of an array, or of every array of a tree, for an error message."""
    if hasattr(x, "shape"):
        return f"[{', '.join(map(str, x.shape))}]"
    leaves = jtu.tree_leaves_with_path(x)
    if not leaves:
        return repr(x)
    return ", ".join(
        f"{jtu.keystr(path) or 'x'} {shape_text(leaf)}"
        if hasattr(leaf, "shape")
        else f"{jtu.keystr(path) or 'x'} {type(leaf).__name__}"
        for path, leaf in leaves
    )
