"""A linear recurrence over time, all steps at once, with episodes that begin anew.

Its numbers are real, an array, or complex, a pair of arrays for the real and the
imaginary part: compilers for CPUs are slow on complex ones, and the pair can be carried
like any other array.
"""

import functools as ft
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool

from .._tree import select, tree_map


Numbers: TypeAlias = Any
"""An array, or a pair of arrays: the real and the imaginary parts."""


def times(one: Numbers, other: Numbers) -> Numbers:
    """The product, number by number."""
    if not isinstance(one, tuple):
        return one * other
    (real, imag), (other_real, other_imag) = one, other
    return (
        real * other_real - imag * other_imag,
        real * other_imag + imag * other_real,
    )


def plus(one: Numbers, other: Numbers) -> Numbers:
    """The sum, number by number."""
    return tree_map(jnp.add, one, other)


def recurrence(
    decay: Numbers,
    drive: Numbers,
    is_first: Bool[Array, "T B"],
    state: Numbers,
    fresh: Numbers,
) -> tuple[Numbers, Numbers]:
    """`state[t] = decay[t] * state[t - 1] + drive[t]` for all `t`.

    Where a step begins an episode, `fresh` stands for `state[t - 1]`: a select, so
    that nothing of what was before reaches the step, its gradient included, be it NaN.

    **Arguments:**

    - `decay`: leaves `[T, B, n]`, or `[T, 1, n]` where all environments share it; not
      larger than 1.
    - `drive`: leaves `[T, B, n]`.
    - `is_first`: where a step begins an episode.
    - `state`: before the first step, leaves `[B, n]`.
    - `fresh`: with what episodes begin, leaves `[B, n]`.

    **Returns:**

    `(states, last)`: after every step, leaves `[T, B, n]`, and after the last one,
    leaves `[B, n]`.
    """
    before = select(is_first[:1], _expanded(fresh), _expanded(state))
    entering = times(tree_map(lambda leaf: leaf[:1], decay), before)
    # A select on both sides of the product: NaN times a gradient of 0 is NaN.
    later = tree_map(lambda leaf: leaf[1:], decay)
    later = select(is_first[1:], later, tree_map(jnp.zeros_like, later))
    begun = times(later, _expanded(fresh))
    begun = select(is_first[1:], begun, tree_map(jnp.zeros_like, begun))
    kick = tree_map(lambda *parts: jnp.concatenate(parts), entering, begun)
    states = _from_nothing(decay, plus(drive, kick), is_first)
    last = tree_map(
        lambda leaf, after: jnp.concatenate([leaf[None], after])[-1], state, states
    )
    return states, last


@jax.custom_vjp
def _from_nothing(
    decay: Numbers, drive: Numbers, is_first: Bool[Array, "T B"]
) -> Numbers:
    """The recurrence where every episode, and the rollout, begins with zeros.

    Its derivative is a recurrence backwards in time. Written down, it needs the states
    alone; automatic differentiation would keep every level of the scan.
    """
    return _scanned(decay, drive, is_first)


def _forward(
    decay: Numbers, drive: Numbers, is_first: Bool[Array, "T B"]
) -> tuple[Numbers, Any]:
    states = _scanned(decay, drive, is_first)
    return states, (decay, states, is_first)


def _backward(residuals: Any, cotangents: Numbers) -> tuple[Numbers, Numbers, None]:
    decay, states, is_first = residuals
    next_decay, next_is_first = tree_map(_later, (_conjugate(decay), is_first))
    to_drive = _scanned(next_decay, cotangents, next_is_first, reverse=True)
    previous = _conjugate(tree_map(_earlier, states))
    to_decay = times(to_drive, previous)
    to_decay = select(is_first, tree_map(jnp.zeros_like, to_decay), to_decay)
    to_decay = tree_map(_summed_as, to_decay, decay)
    return to_decay, to_drive, None


_from_nothing.defvjp(_forward, _backward)


def _scanned(
    decay: Numbers,
    drive: Numbers,
    is_first: Bool[Array, "T B"],
    *,
    reverse: bool = False,
) -> Numbers:
    """The recurrence from zeros, forwards or backwards in time.

    The cores of a CPU are busy with the rows of a single step, and the parallel way
    is about twice the work.
    """
    return jax.lax.platform_dependent(
        decay,
        drive,
        is_first,
        cpu=ft.partial(by_step, reverse=reverse),
        default=ft.partial(in_parallel, reverse=reverse),
    )


def in_parallel(
    decay: Numbers,
    drive: Numbers,
    is_first: Bool[Array, "T B"],
    *,
    reverse: bool = False,
) -> Numbers:
    """By an associative scan, of depth `2 * log2(T)`.

    Its elements are stretches of steps: what becomes of a state over the stretch, and
    whether an episode begins in it, so that nothing becomes of the state.
    """

    def joined(earlier: Any, later: Any) -> Any:
        decay, drive, begins = earlier
        later_decay, later_drive, later_begins = later
        reached = plus(times(later_decay, drive), later_drive)
        return (
            times(decay, later_decay),
            select(later_begins, later_drive, reached),
            begins | later_begins,
        )

    stretches = (decay, drive, is_first)
    return jax.lax.associative_scan(joined, stretches, reverse=reverse)[1]


def by_step(
    decay: Numbers,
    drive: Numbers,
    is_first: Bool[Array, "T B"],
    *,
    reverse: bool = False,
) -> Numbers:
    """By a scan, of depth `T`."""

    def step(state: Numbers, inputs: tuple[Any, Any, Any]) -> tuple[Numbers, Numbers]:
        decay, drive, begins = inputs
        reached = plus(times(decay, state), drive)
        state = select(begins, drive, reached)
        return state, state

    nothing = tree_map(lambda leaf: jnp.zeros(leaf.shape[1:], leaf.dtype), drive)
    steps = (decay, drive, is_first)
    return jax.lax.scan(step, nothing, steps, reverse=reverse)[1]


def _expanded(state: Numbers) -> Numbers:
    """With an axis for time."""
    return tree_map(lambda leaf: leaf[None], state)


def _conjugate(numbers: Numbers) -> Numbers:
    if not isinstance(numbers, tuple):
        return numbers
    real, imag = numbers
    return real, -imag


def _later(leaf: Array) -> Array:
    """What comes a step later; zeros after the end."""
    return jnp.concatenate([leaf[1:], jnp.zeros_like(leaf[:1])])


def _earlier(leaf: Array) -> Array:
    """What came a step earlier; zeros before the start."""
    return jnp.concatenate([jnp.zeros_like(leaf[:1]), leaf[:-1]])


def _summed_as(leaf: Array, like: Array) -> Array:
    """Summed over the environments where these have shared the number."""
    return leaf if leaf.shape == like.shape else jnp.sum(leaf, axis=1, keepdims=True)
