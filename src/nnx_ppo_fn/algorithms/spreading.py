"""Spreads independent trainings over devices."""

import os
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from .._custom_types import PyTree


_IN_PARTS = PartitionSpec("seeds")
"""One training per row, the rows in equal parts on all devices."""


def available_cores() -> int:
    """Cores of the CPU that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def devices_for(count: int) -> Mesh:
    """The devices that share some trainings: all of this process, or as many as needed.

    **Arguments:**

    - `count`: of trainings.
    """
    chosen = getattr(jax.config, "jax_default_device", None)
    if chosen is None or isinstance(chosen, str):
        devices = jax.local_devices(backend=chosen)
    else:
        devices = [chosen]
    return Mesh(np.array(devices[:count]), ("seeds",))


def padded(rows: list[Any], parts: int) -> list[Any]:
    """Rows for equal parts; the last one is repeated until there are enough."""
    return rows + rows[-1:] * (-len(rows) % parts)


def spread(trees: PyTree, mesh: Mesh) -> PyTree:
    """Puts a tree with leaves `[S, ...]` on the devices, each its part of the rows."""
    return jax.device_put(trees, NamedSharding(mesh, _IN_PARTS))


def for_each_row(
    function: Callable[..., PyTree], trees: PyTree, *shared: PyTree, mesh: Mesh
) -> PyTree:
    """`function(row, *shared)` for all rows, on each device for its own.

    A device with many cores or threads works at all of its rows at once, by `jax.vmap`.
    A CPU takes one after the other: what belongs to one training stays in its cache,
    and branches that nobody takes are not paid for.

    **Arguments:**

    - `function`: of one row and of what all rows share.
    - `trees`: leaves `[S, ...]`, `S` a multiple of the devices.
    - `shared`: the same for every row.
    - `mesh`: of `devices_for`.

    **Returns:**

    What the function returns, leaves `[S, ...]`.
    """
    one_by_one = _is_cpu(mesh)

    def of_a_device(trees: PyTree, *shared: PyTree) -> PyTree:
        def of_a_row(row: PyTree) -> PyTree:
            return function(row, *shared)

        return jax.lax.map(of_a_row, trees) if one_by_one else jax.vmap(of_a_row)(trees)

    nothing: Any = PartitionSpec()
    mapped: Any = jax.shard_map(
        of_a_device,
        mesh=mesh,
        in_specs=(_IN_PARTS, *(nothing for _ in shared)),
        out_specs=_IN_PARTS,
        check_vma=False,
    )
    return mapped(trees, *shared)


def _is_cpu(mesh: Mesh) -> bool:
    return mesh.devices.flat[0].platform == "cpu"
