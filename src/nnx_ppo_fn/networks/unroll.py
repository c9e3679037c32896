"""Passes a whole rollout through a module: merged, chained, its own way, or by step."""

import dataclasses
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import jax.tree_util as jtu
from jaxtyping import Array, Bool

from .._tree import merge_time, select, split_time
from ._errors import CompositionError
from .types import (
    advanced,
    ChainedModule,
    StatefulModule,
    StatefulModuleOutput,
    StatelessModule,
    UnrolledModule,
)


State = TypeVar("State")
In = TypeVar("In")
Out = TypeVar("Out")


def reset_where(
    module: StatefulModule[State, Any, Any], is_first: Bool[Array, " B"], state: State
) -> State:
    """The carry with which a step starts: reset where the step begins an episode.

    **Arguments:**

    - `module`: whose carry it is.
    - `is_first`: which environments begin an episode, `[B]`.
    - `state`: the carry, leaves `[B, ...]`.
    """
    return select(is_first, module.reset_state(state), state)


def unroll(
    module: StatefulModule[State, In, Out],
    state: State,
    xs: In,
    is_first: Bool[Array, "T B"],
    rollout_extras: Any = None,
) -> StatefulModuleOutput[State, Out]:
    """Runs a module over `T` steps, as the loop over steps would but layer by layer.

    `jax.grad` goes through it, and through its gradient once more. `jax.jvp` does not
    go through recurrent layers and cycles of populations, whose derivative is written
    down; it goes through a `jax.lax.scan` of `module(state, x)`.

    **Arguments:**

    - `module`: its base class says which way is taken.
    - `state`: the carry before the first step, leaves `[B, ...]`.
    - `xs`: inputs, leaves `[T, B, ...]`.
    - `is_first`: where a step begins an episode; the carry is reset before the step.
    - `rollout_extras`: `None` to sample, or a rollout's extras to replay it.

    **Returns:**

    Outputs with leaves `[T, B, ...]`; `next_state` is the carry `[B, ...]` after the
    last step, not reset even if an episode ended there.

    **Raises:**

    `CompositionError` for an `is_first` that is no array of booleans `[T, B]`, with the
    `T` and the `B` of the inputs.
    """
    _expect_flags_for(xs, is_first)
    if isinstance(module, StatelessModule):
        return _unroll_merged(module, state, xs, is_first, rollout_extras)
    if isinstance(module, ChainedModule):
        return _unroll_chained(module, state, xs, is_first, rollout_extras)
    if isinstance(module, UnrolledModule):
        return module.unroll(state, xs, is_first, rollout_extras)
    return unroll_by_step(module, state, xs, is_first, rollout_extras)


def _expect_flags_for(xs: Any, is_first: Any) -> None:
    shape, dtype = getattr(is_first, "shape", None), getattr(is_first, "dtype", None)
    if shape is None or len(shape) != 2 or dtype != jnp.bool_:
        came = type(is_first).__name__ if shape is None else f"{dtype}{list(shape)}"
        raise CompositionError(f"expected is_first bool[T, B], got {came}")
    leaves = jtu.tree_leaves(xs)
    rows = getattr(leaves[0], "shape", ())[:2] if leaves else shape
    if len(rows) == 2 and rows != shape:
        raise CompositionError(
            f"expected is_first bool{list(rows)}, the first two axes of xs, got "
            f"bool{list(shape)}"
        )


def unroll_by_step(
    module: StatefulModule[State, In, Out],
    state: State,
    xs: In,
    is_first: Bool[Array, "T B"],
    rollout_extras: Any = None,
) -> StatefulModuleOutput[State, Out]:
    """The reference for `unroll`: one `__call__` per step, in a scan.

    Arguments and returns are those of `unroll`.
    """

    def step(
        carry: State, inputs: tuple[In, Bool[Array, " B"], Any]
    ) -> tuple[State, StatefulModuleOutput[Any, Out]]:
        x, first, extras = inputs
        stepped = module(reset_where(module, first, carry), x, extras)
        kept = stepped.rollout_extras if extras is None else None
        return stepped.next_state, dataclasses.replace(
            stepped, next_state=(), rollout_extras=kept
        )

    final_state, stacked = jax.lax.scan(step, state, (xs, is_first, rollout_extras))
    return _finished(stacked, final_state, rollout_extras)


def _unroll_merged(
    module: StatelessModule[In, Out],
    state: Any,
    xs: In,
    is_first: Bool[Array, "T B"],
    rollout_extras: Any,
) -> StatefulModuleOutput[Any, Out]:
    merged = module((), merge_time(xs), merge_time(rollout_extras))
    return _unmerged(merged, state, is_first.shape, rollout_extras)


def _unroll_chained(
    module: ChainedModule[State, Any, In, Out],
    state: State,
    xs: In,
    is_first: Bool[Array, "T B"],
    rollout_extras: Any,
) -> StatefulModuleOutput[State, Out]:
    def advance(carry: State, first: Bool[Array, " B"]) -> tuple[State, Any]:
        return advanced(module, reset_where(module, first, carry))

    final_state, draws = jax.lax.scan(advance, state, is_first)
    merged = module.apply(merge_time(draws), merge_time(xs), merge_time(rollout_extras))
    return _unmerged(merged, final_state, is_first.shape, rollout_extras)


def _unmerged(
    merged: StatefulModuleOutput[Any, Out],
    next_state: State,
    shape: tuple[int, ...],
    rollout_extras: Any,
) -> StatefulModuleOutput[State, Out]:
    """Cuts `T * B` rows back to `[T, B]`."""
    kept = merged.rollout_extras if rollout_extras is None else None
    rows = dataclasses.replace(merged, next_state=(), rollout_extras=kept)
    return _finished(split_time(rows, shape), next_state, rollout_extras)


def _finished(
    outputs: StatefulModuleOutput[Any, Out], next_state: State, rollout_extras: Any
) -> StatefulModuleOutput[State, Out]:
    """With the carry, and with extras as they were received."""
    extras = outputs.rollout_extras if rollout_extras is None else rollout_extras
    return dataclasses.replace(outputs, next_state=next_state, rollout_extras=extras)
