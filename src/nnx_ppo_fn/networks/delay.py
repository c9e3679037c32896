"""A delay of several steps."""

from typing import Any, final, TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.tree_util as jtu
import numpy as np
from jaxtyping import Array, Bool

from .._custom_types import Keys
from .._expect import as_count
from .._keys import expect_keys
from .._tree import by_path, canonical, is_key, select, tree_map
from ._errors import CompositionError, expect_like
from ._ring_buffer import episode_begins, reaches_back, RingBuffer, shifted
from ._trainable import Coefficient, coefficient, number
from .types import output, StatefulModuleOutput, UnrolledModule


DelayState: TypeAlias = RingBuffer
"""The carry of a `Delay`: the inputs of the last `k_steps` steps."""


@final
class Delay(UnrolledModule[DelayState, Any, Any]):
    """Gives each input `k_steps` later.

    In the first `k_steps` of an episode the output is `initial_value`. A mapping comes
    out as a `dict`; dtypes stay. Gradients flow back through the delay.

    A step writes one slot of a ring buffer; an unroll shifts all inputs along time at
    once, without a scan.
    """

    structure: Any = eqx.field(static=True)
    leaves: tuple[tuple[str, tuple[int, ...], Any], ...] = eqx.field(static=True)
    k_steps: int = eqx.field(static=True)
    initial_value: Coefficient

    def __init__(
        self, sample_input: Any, k_steps: int, initial_value: int | float | Array = 0.0
    ):
        """**Arguments:**

        - `sample_input`: one environment's input, without a batch axis: a tree of
          arrays, numbers or `jax.ShapeDtypeStruct`s, of which only shapes and dtypes
          are kept.
        - `k_steps`: how many steps, at least 1.
        - `initial_value`: what fills the buffer when an episode begins, in every leaf.
          Integer and boolean leaves need a number that they can hold.

        **Raises:**

        `ValueError` for a delay of less than a step, and `TypeError` for one that is no
        integer and for an initial value that is no number; `CompositionError` that
        names the leaf for a sample with random keys or without any numbers, and for an
        initial value that does not fit.
        """
        self.k_steps = as_count(k_steps, name="k_steps")
        sample = canonical(sample_input)
        leaves = by_path(sample)
        if not leaves:
            raise CompositionError(
                f"Delay expects at least one array in sample_input, got {sample!r}"
            )
        self.structure = jtu.tree_structure(sample)
        self.leaves = tuple(_spec(name, leaf) for name, leaf in leaves.items())
        if isinstance(initial_value, bool):
            initial_value = float(initial_value)
        self.initial_value = coefficient(initial_value, name="initial_value")
        number(self.initial_value, "initial_value")
        for name, _, dtype in self.leaves:
            _expect_fits(self.initial_value, name, dtype)

    def initialize_state(self, keys: Keys) -> DelayState:
        """Buffers full of `initial_value`; the keys are not used."""
        expect_keys(keys)
        return self._fresh(len(keys))

    def reset_state(self, state: DelayState) -> DelayState:
        """Buffers full of `initial_value`, whatever the old carry."""
        return self._fresh(len(state.index))

    def __call__(
        self, state: DelayState, x: Any, rollout_extras: Any = None
    ) -> StatefulModuleOutput[DelayState, Any]:
        """The input of `k_steps` ago; `x` is like the sample, leaves `[B, ...]`."""
        x = self._expect(x, "B", (len(state.index),))
        return output(
            state.read(self.k_steps),
            batch=len(state.index),
            next_state=state.write(x),
            rollout_extras=rollout_extras,
        )

    def unroll(
        self,
        state: DelayState,
        xs: Any,
        is_first: Bool[Array, "T B"],
        rollout_extras: Any = None,
    ) -> StatefulModuleOutput[DelayState, Any]:
        """All inputs at once, `k_steps` later; leaves `[T, B, ...]`."""
        xs = self._expect(xs, "T, B", is_first.shape)
        begins = episode_begins(is_first)
        remembered = reaches_back(begins, self.k_steps)
        fresh = self._fresh(is_first.shape[1])

        def late(past: Array, leaf: Array, initial: Array) -> Array:
            late = shifted(past, leaf, self.k_steps, len(leaf))
            return select(remembered, late, initial[None, :, 0])

        return StatefulModuleOutput(
            state.after(xs, begins, fresh),
            tree_map(late, state.past(), xs, fresh.buffer),
            jnp.zeros(is_first.shape, jnp.float32),
            {},
            rollout_extras,
        )

    def _fresh(self, batch: int) -> DelayState:
        def full(shape: tuple[int, ...], dtype: Any) -> Array:
            value = number(self.initial_value, "initial_value", dtype)
            return jnp.full((batch, self.k_steps, *shape), value, dtype)

        buffer = [full(shape, dtype) for _, shape, dtype in self.leaves]
        return RingBuffer.filled(jtu.tree_unflatten(self.structure, buffer))

    def _expect(self, x: Any, axes: str, rows: tuple[int, ...]) -> Any:
        """`x` with canonical mappings, once it is clear that it is like the sample."""
        x = canonical(x)
        sample = {name: (shape, dtype) for name, shape, dtype in self.leaves}
        given = expect_like(x, sample, axes=axes, source=", as in Delay's sample_input")
        if jtu.tree_structure(x) != self.structure:
            raise CompositionError(
                f"expected x to be like Delay's sample_input, {self.structure}, got "
                f"{jtu.tree_structure(x)}"
            )
        for name, leaf in given.items():
            wanted = (*rows, *leaf.shape[len(rows) :])
            if leaf.shape != wanted:
                raise CompositionError(
                    f"expected {name} {leaf.dtype}{list(wanted)}, a row for each of "
                    f"the carry's, got {leaf.dtype}{list(leaf.shape)}"
                )
        return x


def _spec(name: str, leaf: Any) -> tuple[str, tuple[int, ...], Any]:
    """A leaf of the sample: its name, shape and dtype."""
    if is_key(leaf):
        raise CompositionError(
            f"{name} holds random keys; they would come out, and be drawn from, twice. "
            "Delay numbers only"
        )
    try:
        kept = jax.eval_shape(lambda number: number, leaf)
    except TypeError:
        raise CompositionError(
            f"expected {name} to be an array or a number, got {type(leaf).__name__}"
        ) from None
    return name, kept.shape, kept.dtype


def _expect_fits(value: Coefficient, name: str, dtype: Any) -> None:
    """Refuses an initial value that a leaf cannot hold; arrays are not looked at."""
    if jnp.issubdtype(dtype, jnp.inexact):
        return
    if not isinstance(value, float):
        raise CompositionError(
            f"{name} holds {dtype}, and an array as initial_value only goes with "
            "floating-point numbers; give a number"
        )
    # The value is traced as a float32, which must not change it.
    exact = np.isfinite(value) and float(np.float32(value)) == value
    if dtype == jnp.bool_:
        fits = value in (0.0, 1.0)
    else:
        limits = jnp.iinfo(dtype)
        fits = exact and value.is_integer() and limits.min <= value <= limits.max
    if not fits:
        raise CompositionError(
            f"initial_value {value:g} does not fit into {name}, which holds {dtype}"
        )
