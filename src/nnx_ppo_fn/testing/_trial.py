"""What the laws look at: a module at work on random inputs, with resets.

Everything is compiled as few times as the laws allow; a module that is checked again,
or one like it, finds its functions compiled.
"""

import dataclasses
import functools as ft
from typing import Any, final
from zlib import crc32

import jax.numpy as jnp
import jax.random as jr
import jax.tree_util as jtu
import numpy as np
from jaxtyping import Array, Bool, Key
from numpy.typing import NDArray

from .._custom_types import Keys
from .._keys import derive
from .._tree import is_key
from ..networks.types import StatefulModule, StatefulModuleOutput
from ..networks.unroll import reset_where
from ._compare import take_rows
from ._compile import unoptimised


@final
@dataclasses.dataclass(frozen=True)
class Step:
    """One recorded step.

    - `before`: the carry it started from, not yet reset.
    - `x`, `is_first`: its input, and where it began an episode.
    - `rollout`: what the module returned without extras.
    - `replayed`: what it returned from the same carry with the extras of `rollout`.
    """

    before: Any
    x: Any
    is_first: Bool[Array, " B"]
    rollout: StatefulModuleOutput[Any, Any]
    replayed: StatefulModuleOutput[Any, Any]


@final
class Trial:
    """A module at work: warmed up, then recorded for `length` steps."""

    def __init__(
        self,
        module: StatefulModule[Any, Any, Any],
        example_input: Any,
        key: Key[Array, ""],
        length: int,
    ):
        self.module = module
        self.length = length
        self.batch: int = jtu.tree_leaves(example_input)[0].shape[0]
        self._key = key
        self.unrolled: Any = None
        self._example = jtu.tree_map(jnp.asarray, example_input)

    def random(self, purpose: str) -> np.random.Generator:
        """Numbers on the host for one purpose; the same ones every time."""
        seed = np.asarray(jr.key_data(self._key)).ravel().tolist()
        return np.random.default_rng([*seed, crc32(purpose.encode())])

    @ft.cached_property
    def keys(self) -> Keys:
        """The keys that the carry is born with."""
        return jr.split(derive(self._key, "birth"), self.batch)

    @ft.cached_property
    def other_keys(self) -> Keys:
        """Keys for a second birth."""
        return jr.split(derive(self._key, "another birth"), self.batch)

    @ft.cached_property
    def born(self) -> Any:
        """A fresh carry."""
        return self.module.initialize_state(self.keys)

    @ft.cached_property
    def other_born(self) -> Any:
        """A fresh carry from other keys."""
        return self.module.initialize_state(self.other_keys)

    @ft.cached_property
    def xs(self) -> Any:
        """Random inputs `[T, B, ...]`."""
        return vary(self._example, self.random("inputs"), self.length)

    @ft.cached_property
    def is_first(self) -> Bool[Array, "T B"]:
        """Resets at random, with the corner cases among them."""
        shape = (self.length, self.batch)
        pattern = self.random("resets").random(shape) < 0.3
        pattern[:, 0] = False
        pattern[:, 1] = True
        pattern[:, 2] = np.arange(self.length) == 0
        pattern[:, 3] = np.arange(self.length) == self.length - 1
        return jnp.asarray(pattern)

    @ft.cached_property
    def evolved(self) -> Any:
        """A carry that has seen inputs and resets."""
        return self._run(self.born)[-1].rollout.next_state

    @ft.cached_property
    def other_evolved(self) -> Any:
        """The same with other keys."""
        return self._run(self.other_born)[-1].rollout.next_state

    @ft.cached_property
    def steps(self) -> list[Step]:
        """The recording, starting from `evolved`."""
        return self._run(self.evolved)

    @ft.cached_property
    def recorded(self) -> StatefulModuleOutput[Any, Any]:
        """The recording as `unroll` returns it: outputs `[T, B, ...]`."""
        return stack_steps([step.rollout for step in self.steps])

    @ft.cached_property
    def subsets(self) -> dict[str, NDArray[Any]]:
        """Choices of rows of which none is a prefix, and no row is in all of them."""
        last, middle = self.batch - 1, self.batch // 2
        return {
            "a single row": np.array([middle]),
            "the last row": np.array([last]),
            "rows with a repeat": np.resize([middle, last], self.batch),
            "a permutation of the rows": np.roll(np.arange(self.batch)[::-1], 1),
        }

    def _run(self, state: Any) -> list[Step]:
        steps: list[Step] = []
        for index in range(self.length):
            x, is_first = take_rows((self.xs, self.is_first), index)
            rollout, replayed = both_modes(self.module, state, x, is_first)
            steps.append(Step(state, x, is_first, rollout, replayed))
            state = rollout.next_state
        return steps


@unoptimised
def both_modes(
    module: StatefulModule[Any, Any, Any], state: Any, x: Any, is_first: Array
) -> tuple[StatefulModuleOutput[Any, Any], StatefulModuleOutput[Any, Any]]:
    """One step as rollout, and the same step as a replay of it."""
    state = reset_where(module, is_first, state)
    rollout = module(state, x)
    if rollout.rollout_extras is None:
        return rollout, rollout
    return rollout, module(state, x, rollout.rollout_extras)


def stack_steps(
    steps: list[StatefulModuleOutput[Any, Any]],
) -> StatefulModuleOutput[Any, Any]:
    """Outputs `[T, B, ...]` from outputs of single steps; the last step's carry."""
    without_carry = [
        (step.output, step.regularization_loss, step.metrics, step.rollout_extras)
        for step in steps
    ]
    stacked = jtu.tree_map(_stack, *without_carry)
    return StatefulModuleOutput(steps[-1].next_state, *stacked)


def _stack(*leaves: Array) -> Array:
    if is_key(leaves[0]):
        return jnp.stack(leaves)
    return jnp.asarray(np.stack([np.asarray(leaf) for leaf in leaves]))


def invent(shapes: Any, random: np.random.Generator) -> Any:
    """Normal numbers of the given shapes, and ones where numbers are not floats."""

    def numbers(leaf: Any) -> Array:
        normal = random.standard_normal(leaf.shape)
        inexact = jnp.issubdtype(leaf.dtype, jnp.inexact)
        values = normal.astype(leaf.dtype) if inexact else np.ones(leaf.shape)
        return jnp.asarray(values, leaf.dtype)

    return jtu.tree_map(numbers, shapes)


def finite(leaf: Any) -> NDArray[Any]:
    """The numbers of an array that are finite, in one row."""
    values = np.asarray(leaf, np.float64)
    return values[np.isfinite(values)]


def vary(example: Any, random: np.random.Generator, length: int) -> Any:
    """Random inputs like an example.

    Floating-point numbers get noise of the example's own spread. Everything else
    keeps to values that the example has: whole rows of it, drawn at random.

    **Arguments:**

    - `example`: leaves `[B, ...]`.
    - `random`: where the noise comes from.
    - `length`: how many steps.

    **Returns:**

    Leaves `[T, B, ...]`.
    """
    batch = jtu.tree_leaves(example)[0].shape[0]
    rows = random.integers(batch, size=(length, batch))

    def varied(leaf: Array) -> Array:
        if is_key(leaf) or not jnp.issubdtype(leaf.dtype, jnp.floating):
            return take_rows(leaf, rows)
        centre, known = np.asarray(leaf, np.float64), finite(leaf)
        spread = np.std(known) if known.size else 0.0
        spread = spread if spread > 0 else 1.0
        noise = random.standard_normal((length, *leaf.shape))
        return jnp.asarray((centre + spread * noise).astype(leaf.dtype))

    return jtu.tree_map(varied, example)
