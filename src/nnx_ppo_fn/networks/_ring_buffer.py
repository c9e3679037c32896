"""Memory of the last few steps, and the same memory for a whole rollout at once."""

from typing import Any, final

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.tree_util as jtu
from jaxtyping import Array, Bool, Int

from .._tree import select, tree_map


# Before every rollout, and far enough from 0 that no delay reaches back so far.
_LONG_AGO = -(2**30)


_MOST_SELECTED = 8
"""Up to so many slots, a step writes all of them: XLA's older emitters, by which a CPU
compiles training steps, go from row to row to write one. With more, a gradient that
goes step by step would keep too much, a flag for each number of all slots."""


@final
class RingBuffer(eqx.Module):
    """What came in during the last `k` steps, for every environment.

    - `buffer`: leaves `[B, k, ...]`.
    - `index`: the slot with the oldest entry, `[B]`, which is the next to be written.
    """

    buffer: Any
    index: Int[Array, " B"]

    @staticmethod
    def filled(buffer: Any) -> "RingBuffer":
        """A buffer as an episode begins with it.

        **Arguments:**

        - `buffer`: what fills it, leaves `[B, k, ...]`; at least one.
        """
        batch = jtu.tree_leaves(buffer)[0].shape[0]
        return RingBuffer(buffer, jnp.zeros(batch, jnp.int32))

    @property
    def size(self) -> int:
        """How many steps are remembered, `k`."""
        return jtu.tree_leaves(self.buffer)[0].shape[1]

    def read(self, delay: int) -> Any:
        """What was written `delay` steps ago, leaves `[B, ...]`.

        **Arguments:**

        - `delay`: from 1, the last step, to `k`.
        """
        slots = (self.index - delay) % self.size
        return tree_map(lambda leaf: _of_each_row(leaf, slots), self.buffer)

    def write(self, x: Any) -> "RingBuffer":
        """The buffer with `x`, leaves `[B, ...]`, in the place of the oldest entry."""
        write = _selected_slot if self.size <= _MOST_SELECTED else jax.vmap(_set_slot)
        return RingBuffer(
            tree_map(lambda leaf, new: write(leaf, self.index, new), self.buffer, x),
            (self.index + 1) % self.size,
        )

    def past(self) -> Any:
        """All entries in the order of time, oldest first, leaves `[k, B, ...]`."""
        slots = jnp.arange(self.size, dtype=jnp.int32)
        ages = (self.index[:, None] + slots[None]) % self.size
        return tree_map(
            lambda leaf: _of_each_row(leaf, ages).swapaxes(0, 1), self.buffer
        )

    def after(
        self, xs: Any, begins: Int[Array, "T B"], fresh: "RingBuffer"
    ) -> "RingBuffer":
        """The buffer after a rollout in which `xs` was written step by step.

        **Arguments:**

        - `xs`: leaves `[T, B, ...]`.
        - `begins`: when each step's episode began, from `episode_begins`.
        - `fresh`: the buffer with which an episode begins.
        """
        length = len(begins)
        if length == 0:
            return self
        begin = begins[-1]
        was_reset = begin >= 0
        first_slot = jnp.where(was_reset, 0, self.index % self.size)
        next_slot = (first_slot + length - jnp.maximum(begin, 0)) % self.size
        # The last step that wrote each slot, if one did since the episode began.
        slots = jnp.arange(self.size, dtype=jnp.int32)[None]
        since = (next_slot[:, None] - 1 - slots) % self.size
        step = length - 1 - since
        written = step >= jnp.maximum(begin, 0)[:, None]

        def after(leaf: Array, new: Array, initial: Array) -> Array:
            old = select(was_reset, initial, leaf)
            written_last = _of_each_row(new.swapaxes(0, 1), jnp.maximum(step, 0))
            return select(written, written_last, old)

        return RingBuffer(tree_map(after, self.buffer, xs, fresh.buffer), next_slot)


def _set_slot(row: Array, slot: Array, new: Array) -> Array:
    return row.at[slot].set(new)


def _selected_slot(rows: Array, slots: Array, new: Array) -> Array:
    """`_set_slot` in every row, by a select among all slots."""
    is_written = jnp.arange(rows.shape[1], dtype=jnp.int32)[None] == slots[:, None]
    return select(is_written, new[:, None].astype(rows.dtype), rows)


@jax.vmap
def _of_each_row(row: Array, slots: Array) -> Array:
    """Some slots of every row, which is on one device and stays there."""
    return row[slots]


def episode_begins(is_first: Bool[Array, "T B"]) -> Int[Array, "T B"]:
    """The step at which each step's episode began; far below 0 if before the rollout.

    **Arguments:**

    - `is_first`: where a step begins an episode.
    """
    times = jnp.arange(len(is_first), dtype=jnp.int32)[:, None]
    return jax.lax.cummax(jnp.where(is_first, times, _LONG_AGO), axis=0)


def reaches_back(begins: Int[Array, "T B"], delay: int) -> Bool[Array, "T B"]:
    """Where the step `delay` steps ago belongs to the same episode.

    An episode that was under way before the rollout counts as old: what a buffer holds
    of the time before it is what a fresh one holds.

    **Arguments:**

    - `begins`: when each step's episode began, from `episode_begins`.
    - `delay`: a number of steps.
    """
    times = jnp.arange(len(begins), dtype=jnp.int32)[:, None]
    return begins <= times - delay


def shifted(past: Array, xs: Array | None, delay: int, length: int) -> Array:
    """`xs`, `[T, B, ...]`, later by `delay` steps, whatever episodes there are.

    **Arguments:**

    - `past`: what came before `xs`, oldest first, `[k, B, ...]`.
    - `xs`: `None` will do where `delay` is not shorter than `length`.
    - `delay`: from 1 to `k`.
    - `length`: how many steps are wanted, `T`.
    """
    start = len(past) - delay
    older = past[start : start + min(delay, length)]
    if xs is None or delay >= length:
        return older
    return jnp.concatenate([older, xs[: length - delay]])
