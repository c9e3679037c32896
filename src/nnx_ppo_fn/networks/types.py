"""What a module is: its four methods, what it returns, and how time passes through it.

A module is an immutable tree of arrays. Its methods are pure functions, and the carry
that they pass on has one row per environment. The base class that an author picks
says how a whole rollout passes through the module; `unroll` does the rest.
"""

import abc
import dataclasses
import operator
from collections.abc import Mapping
from typing import Any, cast, final, Generic, TYPE_CHECKING, TypeAlias, TypeVar

import equinox as eqx
import jax.numpy as jnp
import jax.tree_util as jtu
from jaxtyping import Array, Bool, Float

from .._custom_types import Keys
from .._keys import advance_keys, derive
from .._tree import shape_text
from ._declared import declared
from ._errors import CompositionError


State = TypeVar("State")
Draw = TypeVar("Draw")
In = TypeVar("In")
Out = TypeVar("Out")
Module = TypeVar("Module", bound="StatefulModule[Any, Any, Any]")

ACTIVATION_KEY = "__activation__"
"""Where activations stand among metrics: see `with_recording`."""


@final
class SampledAction(eqx.Module):
    """What an action sampler returns; `PPOAdapter` finds them by this type.

    `action` is what the environment receives, leaves `[B, ...]`; `log_likelihood` is
    the natural logarithm of its density or probability, `float32`, `[B]`.
    """

    action: Any
    log_likelihood: Float[Array, "..."]


@final
class PPONetworkOutput(eqx.Module):
    """What PPO needs from a network, `[B]` per step or `[T, B]` for a rollout.

    `actions`, `loglikelihoods` and `value_estimates` are arrays, or trees of them
    where a network has several samplers or values.
    """

    actions: Any
    loglikelihoods: Any
    value_estimates: Any


@final
class StatefulModuleOutput(eqx.Module, Generic[State, Out]):
    """What a module returns from one step, leaves `[B, ...]`; from `unroll`,
    `[T, B, ...]` except for `next_state`.

    - `next_state`: the carry for the next step, always `[B, ...]`.
    - `output`: the module's value.
    - `regularization_loss`: `[B]`, added to the loss.
    - `metrics`: numbers for the log, one per environment.
    - `rollout_extras`: what the replay must be given back: a sampler's raw action,
      the input of a module that keeps statistics, or `None`.
    """

    next_state: State
    output: Out
    regularization_loss: Float[Array, "..."]
    metrics: Mapping[str, Any]
    rollout_extras: Any = None

    if not TYPE_CHECKING:

        def __class_getitem__(cls, parameters):
            return declared(
                super().__class_getitem__(parameters), ("next_state", "output")
            )


def output(
    value: Out,
    *,
    batch: int,
    next_state: Any = (),
    regularization_loss: Float[Array, "..."] | float | int | None = None,
    metrics: Mapping[str, Any] | None = None,
    rollout_extras: Any = None,
) -> StatefulModuleOutput[Any, Out]:
    """A module's output, with defaults for what the module has nothing to say about.

    **Arguments:**

    - `value`: the output, leaves `[B, ...]`.
    - `batch`: the batch size `B`, usually `len(x)`.
    - `regularization_loss`: `[B]`, or a Python number for every environment.
    - the rest: the fields of `StatefulModuleOutput`.

    **Raises:**

    `CompositionError` if `batch` is not a number.

    **Example:**

    ```python
    return output(x + noise, batch=len(x))
    ```
    """
    try:
        rows = operator.index(batch)
    except TypeError:
        raise CompositionError(
            f"expected batch to be the number of rows, such as len(x), got {batch!r}"
        ) from None
    loss = 0.0 if regularization_loss is None else regularization_loss
    if isinstance(loss, int | float):
        loss = jnp.full(rows, loss, jnp.float32)
    return StatefulModuleOutput(
        next_state,
        value,
        loss.astype(jnp.float32),
        {} if metrics is None else metrics,
        rollout_extras,
    )


def expect_output(result: Any, method: str) -> None:
    """Raises `CompositionError` if an author has returned a bare value.

    **Arguments:**

    - `result`: what a module's method has returned.
    - `method`: which one, for the message.
    """
    if not isinstance(result, StatefulModuleOutput):
        raise CompositionError(
            f"expected {method} to return output(value, batch=len(x), ...), got "
            f"{shape_text(result)}"
        )


def expect_pair(result: Any, method: str, meaning: str, carry: Any) -> Any:
    """A pair of the next carry and something else, if an author returned one.

    **Arguments:**

    - `result`: what a module's method has returned.
    - `method`, `meaning`: which one, and what it returns, for the message.
    - `carry`: what the next carry must be built like.

    **Raises:**

    `CompositionError` for anything else, and for a carry of another structure.
    """
    if not isinstance(result, tuple) or len(cast(tuple[Any, ...], result)) != 2:
        raise CompositionError(
            f"expected {method} to return {meaning}, got {type(result).__name__} "
            f"{shape_text(result)}"
        )
    next_carry, other = cast(tuple[Any, Any], result)
    if jtu.tree_structure(next_carry) != jtu.tree_structure(carry):
        raise CompositionError(
            f"expected {method} to return {meaning} with a carry like "
            f"{shape_text(carry)} first, got {shape_text(next_carry)} first"
        )
    return next_carry, other


def expect_module(place: str, module: Any) -> None:
    """Refuses what is not a module, with advice that a type checker would not give.

    Whatever takes modules from a user therefore takes `Any`.

    **Arguments:**

    - `place`: where the module would stand, such as `Sequential[2]`.
    - `module`: what should be a module.

    **Raises:**

    `CompositionError` that says what came instead, and what to do.
    """
    if isinstance(module, StatefulModule):
        return
    given = module.__name__ if isinstance(module, type) else type(module).__name__
    advice = "wrap a function on [B, ...] arrays in Stateless(fn)"
    if isinstance(module, eqx.Module):
        advice = "wrap a layer that works on a single example in Lift(layer)"
    if isinstance(module, type) and issubclass(module, StatefulModule):
        advice = f"make one: {given}(...)"
    raise CompositionError(
        f"expected a module, got {given!r}; {advice}", (place,), given
    )


def has_inference_flag(tree: Any) -> bool:
    """Whether `equinox.nn.inference_mode` would change something in a tree."""
    return any(
        path and isinstance(path[-1], jtu.GetAttrKey) and path[-1].name == "inference"
        for path, _ in jtu.tree_leaves_with_path(tree)
    )


class StatefulModule(eqx.Module, Generic[State, In, Out]):
    """Any module: three pure methods over a carry, and one over a rollout.

    Derive from this class only where none of `StatelessModule`, `ChainedModule`,
    `StochasticModule` and `UnrolledModule` fits: `unroll` then goes step by step.

    The one law: what happens to environment `i` depends on environment `i` alone.
    `nnx_ppo_fn.testing.check_module` checks it.
    """

    @abc.abstractmethod
    def initialize_state(self, keys: Keys) -> State:
        """A fresh carry.

        **Arguments:**

        - `keys`: one key per environment, `[B]`, owned by the carry from here on.

        **Returns:**

        A carry whose array leaves have the leading axis `B`.
        """

    @abc.abstractmethod
    def __call__(
        self, state: State, x: In, rollout_extras: Any = None
    ) -> StatefulModuleOutput[State, Out]:
        """One step.

        **Arguments:**

        - `state`: the carry, leaves `[B, ...]`.
        - `x`: the input, leaves `[B, ...]`.
        - `rollout_extras`: `None` in a rollout and in inference: sample, and return
          what a replay will need. Otherwise what that step returned: use it.

        **Returns:**

        The output with the next carry, of the structure, shapes and dtypes of `state`.
        """

    @abc.abstractmethod
    def reset_state(self, state: State) -> State:
        """The carry with which a new episode begins.

        **Arguments:**

        - `state`: the carry of the episode that ended. Key chains may live on or
          give fresh keys; nothing else in it may be looked at.
        """

    def update_statistics(self: Module, rollout_extras: Any) -> Module:
        """The module with its running statistics brought up to date.

        Called once per iteration, after the updates of the parameters.

        **Arguments:**

        - `rollout_extras`: what the module returned in the rollout, leaves
          `[T, B, ...]`. In a step that is to be left out every number is NaN
          (integers arrive as `float32` then).
        """
        return self

    def recorded(self, result: StatefulModuleOutput[Any, Any]) -> Any:
        """What `with_recording` records of the module; its output unless it is written.

        **Arguments:**

        - `result`: what the module has returned from a step, leaves `[B, ...]`. In an
          unroll the module is run step by step for this.

        **Returns:**

        A tree of arrays `[B, ...]`.
        """
        return result.output


AnyModule: TypeAlias = StatefulModule[Any, Any, Any]
"""A module of whatever state, input and output."""


class StatelessModule(StatefulModule[tuple[()], In, Out]):
    """A module without a carry: only `__call__` is written.

    Its input may be the batch of one step or a whole rollout merged to `T * B` rows.
    """

    def initialize_state(self, keys: Keys) -> tuple[()]:
        """No carry."""
        return ()

    def reset_state(self, state: tuple[()]) -> tuple[()]:
        """No carry."""
        return state


class ChainedModule(StatefulModule[State, In, Out], Generic[State, Draw, In, Out]):
    """A module whose carry evolves without looking at the input: key chains, counters.

    `unroll` scans the cheap `advance` over time, then calls `apply` once on all
    `T * B` rows.
    """

    @abc.abstractmethod
    def advance(self, state: State) -> tuple[State, Draw]:
        """One step of the carry.

        **Returns:**

        `(next_state, draw)`, where `draw` is what `apply` needs of this step, leaves
        `[B, ...]`.
        """

    @abc.abstractmethod
    def apply(
        self, draw: Draw, x: In, rollout_extras: Any = None
    ) -> StatefulModuleOutput[Any, Out]:
        """The module's value, row by row.

        **Arguments:**

        - `draw`: what `advance` gave for each row.
        - `x`: the input, leaves `[B, ...]`.
        - `rollout_extras`: as in `StatefulModule.__call__`.

        **Returns:**

        An output whose `next_state` is `()`.
        """

    @final
    def __call__(
        self, state: State, x: In, rollout_extras: Any = None
    ) -> StatefulModuleOutput[State, Out]:
        """One step: `advance`, then `apply`."""
        next_state, draw = advanced(self, state)
        applied = self.apply(draw, x, rollout_extras)
        expect_output(applied, "apply")
        return dataclasses.replace(applied, next_state=next_state)


def advanced(
    module: ChainedModule[State, Draw, Any, Any], state: State
) -> tuple[State, Draw]:
    """What `advance` returns, if it is a pair that starts with a carry."""
    result = module.advance(state)
    return expect_pair(result, "advance", "(next_state, draw)", state)


class StochasticModule(ChainedModule[Keys, Keys, In, Out]):
    """A module that draws: only `apply(draw, x, rollout_extras)` is written.

    Its carry is a chain of keys, `[B]`; `draw` holds a fresh key for each row, to be
    consumed once. The chain survives resets, unless `fresh_keys` is set: an episode
    then begins with a new chain, derived from the old one.
    """

    fresh_keys: bool = eqx.field(default=False, static=True, kw_only=True)

    def initialize_state(self, keys: Keys) -> Keys:
        """The chain starts at the environment's own key."""
        return keys

    def reset_state(self, state: Keys) -> Keys:
        """The chain goes on, or a new one begins."""
        return derive(state, "episode") if self.fresh_keys else state

    def advance(self, state: Keys) -> tuple[Keys, Keys]:
        """The chain's next link, and a key to draw from."""
        return advance_keys(state)


class UnrolledModule(StatefulModule[State, In, Out]):
    """A module that knows a better way through time than step by step."""

    @abc.abstractmethod
    def unroll(
        self,
        state: State,
        xs: In,
        is_first: Bool[Array, "T B"],
        rollout_extras: Any = None,
    ) -> StatefulModuleOutput[State, Out]:
        """The whole rollout at once; the laws hold it to the step form.

        **Arguments:**

        - `state`: the carry before the first step, leaves `[B, ...]`.
        - `xs`: inputs, leaves `[T, B, ...]`.
        - `is_first`: where a step begins an episode: the carry is reset before it.
        - `rollout_extras`: `None`, or extras of the whole rollout, `[T, B, ...]`.

        **Returns:**

        Outputs `[T, B, ...]`, with the carry `[B, ...]` after the last step.
        """
