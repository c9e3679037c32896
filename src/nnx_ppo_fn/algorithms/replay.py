"""Recomputes a rollout's activations under the network's present weights."""

import dataclasses
import functools as ft
from typing import Any

import jax
import jax.numpy as jnp

from .._custom_types import PyTree
from .._expect import as_count, as_shards, expect_flags
from .._tree import into_groups, out_of_groups, tree_map
from ..networks.types import AnyModule, PPONetworkOutput, StatefulModuleOutput
from ..networks.unroll import unroll
from .types import Rollout


def replay(
    network: AnyModule,
    rollout: Rollout,
    *,
    chunk_length: int | None = None,
    rematerialize: bool = False,
    n_shards: int = 1,
) -> StatefulModuleOutput[Any, PPONetworkOutput]:
    """Runs the network over a rollout once more, layer by layer.

    With unchanged weights this gives the recorded outputs; with new ones, the same
    noise and the recorded actions under the new weights. How time is cut changes
    neither the numbers, but for rounding, nor the gradient.

    **Arguments:**

    - `network`: of the structure that the rollout was recorded with.
    - `rollout`: a whole one, or a minibatch of environments.
    - `chunk_length`: how many steps pass through all layers before the next ones do;
      `None` for all of them.
    - `rematerialize`: whether a gradient computes the activations of a chunk once more
      instead of keeping those of all chunks in memory. Without chunks it only costs.
    - `n_shards`: how many groups of neighbouring environments are replayed each by
      itself, side by side. Layers that merge time and environments into one axis then
      do so within a group, and thereby within a device that holds it.

    **Returns:**

    Outputs with leaves `[T, B, ...]`, and the carry after the last step.

    **Raises:**

    `TypeError` and `ValueError` for counts that are none, for a flag that is no `bool`,
    and where the environments cannot be divided into `n_shards` equal groups.
    """
    if chunk_length is not None:
        chunk_length = as_count(chunk_length, name="chunk_length")
    expect_flags(rematerialize=rematerialize)
    n_shards = as_shards(n_shards, rollout.is_first.shape[1], "a rollout")
    transitions = rollout.transitions
    inputs = (transitions.obs, rollout.is_first, transitions.rollout_extras)
    length = len(rollout.is_first)
    chunk = length if chunk_length is None else min(chunk_length, length)

    def run(carry: PyTree, inputs: tuple[Any, Any, Any]) -> tuple[PyTree, Any]:
        replayed = unroll(network, carry, *inputs)
        parts = dataclasses.replace(replayed, next_state=(), rollout_extras=None)
        return replayed.next_state, parts

    if rematerialize:
        run = jax.checkpoint(run)
    if chunk < length:
        run = ft.partial(_in_chunks, run, length=length, chunk=chunk)
    if n_shards > 1:
        run = ft.partial(_in_shards, run, n_shards=n_shards)
    carry, outputs = run(rollout.initial_carry, inputs)
    return dataclasses.replace(
        outputs, next_state=carry, rollout_extras=transitions.rollout_extras
    )


def _in_chunks(
    run: Any, carry: PyTree, inputs: PyTree, *, length: int, chunk: int
) -> tuple[PyTree, PyTree]:
    """Scans over chunks of time; what is left of a chunk follows by itself."""
    whole = length // chunk
    until = whole * chunk
    stacked = tree_map(
        lambda leaf: leaf[:until].reshape((whole, chunk, *leaf.shape[1:])), inputs
    )
    carry, outputs = jax.lax.scan(run, carry, stacked)
    outputs = tree_map(lambda leaf: leaf.reshape((until, *leaf.shape[2:])), outputs)
    if until == length:
        return carry, outputs
    carry, rest = run(carry, tree_map(lambda leaf: leaf[until:], inputs))
    return carry, tree_map(lambda *parts: jnp.concatenate(parts), outputs, rest)


def _in_shards(
    run: Any, carry: PyTree, inputs: PyTree, *, n_shards: int
) -> tuple[PyTree, PyTree]:
    """Maps over groups of neighbouring environments."""
    carry, outputs = jax.vmap(run, in_axes=(0, 1), out_axes=(0, 1))(
        into_groups(carry, n_shards), into_groups(inputs, n_shards, axis=1)
    )
    return out_of_groups(carry), out_of_groups(outputs, axis=1)
