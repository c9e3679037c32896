"""Spreads independent trainings over devices."""

import os
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import jax.tree_util as jtu
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array

from .._custom_types import PyTree
from .._tree import is_key


_IN_PARTS = PartitionSpec("seeds")
"""One training per row, the rows in equal parts on all devices."""


def available_cores() -> int:
    """Cores of the CPU that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def devices_for(count: int) -> Mesh:
    """The devices that share some trainings: all of this process, or as many as needed.

    One alone within `jax.default_device` or `jax.set_mesh`.

    **Arguments:**

    - `count`: of trainings.
    """
    chosen = getattr(jax.config, "jax_default_device", None)
    if chosen is None or isinstance(chosen, str):
        devices = jax.local_devices(backend=chosen)
    else:
        devices = [chosen]
    if not jax.sharding.get_abstract_mesh().empty:
        count = 1
    return Mesh(np.array(devices[:count]), ("seeds",))


def padded(rows: list[Any], parts: int) -> list[Any]:
    """Rows for equal parts; the last one is repeated until there are enough."""
    return rows + rows[-1:] * (-len(rows) % parts)


def spread(trees: PyTree, mesh: Mesh) -> PyTree:
    """Puts a tree with leaves `[S, ...]` on the devices, each its part of the rows.

    Where there is one device, the tree stays as it is.
    """
    return _placed(trees, _IN_PARTS, mesh)


def shared(tree: PyTree, mesh: Mesh) -> PyTree:
    """Puts the arrays of a tree on every device; numbers stay numbers."""
    return _placed(tree, PartitionSpec(), mesh)


def brought_home(tree: PyTree, mesh: Mesh) -> PyTree:
    """A tree as if it had been computed where JAX computes by default."""

    def at_home(leaf: Array) -> Array:
        if is_key(leaf):
            data = jnp.asarray(np.asarray(jr.key_data(leaf)))
            return jr.wrap_key_data(data, impl=jr.key_impl(leaf))
        return jnp.asarray(np.asarray(leaf))

    return tree if mesh.size == 1 else jtu.tree_map(at_home, tree)


def for_each_row(
    function: Callable[..., PyTree], trees: PyTree, *common: PyTree, mesh: Mesh
) -> PyTree:
    """`function(row, *common)` for all rows, on each device for its own.

    A device with many cores or threads works at all of its rows at once, by `jax.vmap`.
    A CPU takes one after the other: what belongs to one training stays in its cache,
    and branches that nobody takes are not paid for.

    **Arguments:**

    - `function`: of one row and of what all rows share.
    - `trees`: leaves `[S, ...]`, `S` a multiple of the devices.
    - `common`: the same for every row.
    - `mesh`: of `devices_for`.

    **Returns:**

    What the function returns, leaves `[S, ...]`.
    """
    one_by_one = _is_cpu(mesh)

    def of_a_device(trees: PyTree, *common: PyTree) -> PyTree:
        def of_a_row(row: PyTree) -> PyTree:
            return function(row, *common)

        return jax.lax.map(of_a_row, trees) if one_by_one else jax.vmap(of_a_row)(trees)

    if mesh.size == 1:
        return of_a_device(trees, *common)
    mapped: Any = jax.shard_map(
        of_a_device,
        mesh=mesh,
        in_specs=(_IN_PARTS, *(PartitionSpec() for _ in common)),
        out_specs=_IN_PARTS,
        check_vma=False,
    )
    return mapped(trees, *common)


def _is_cpu(mesh: Mesh) -> bool:
    return mesh.devices.flat[0].platform == "cpu"


def _placed(tree: PyTree, parts: PartitionSpec, mesh: Mesh) -> PyTree:
    if mesh.size == 1:
        return tree
    placement = NamedSharding(mesh, parts)
    return jtu.tree_map(
        lambda leaf: (
            jax.device_put(leaf, placement) if isinstance(leaf, jax.Array) else leaf
        ),
        tree,
    )
