"""The laws that need no numbers: shapes, the carry, and where every key goes."""

from collections.abc import Collection, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import jax.tree_util as jtu

from ..networks._errors import plainly
from ..networks._routing import Container, Name, Parent
from ..networks._wrapper import unwrapped
from ..networks.types import (
    AnyModule,
    ChainedModule,
    expect_module,
    StatefulModuleOutput,
    StatelessModule,
    UnrolledModule,
)
from ..networks.unroll import unroll
from ._causes import ROUTED
from ._declaration_laws import declaration_violations
from ._dependence_laws import replay_violations, reset_violations
from ._localise import blame, record_inputs
from ._provenance_laws import key_violations
from ._statistics_traces import statistics_violations
from ._traces import (
    expect_batch,
    key_shapes,
    leaf_paths,
    leak,
    leaked,
    signature,
    Trace,
    trace,
    with_batch,
)
from .violation import LawViolation


STATIC_LAWS = (
    "structure",
    "carry",
    "provenance",
    "reset",
    "replay",
    "re-weighting",
    "unroll",
    "statistics",
    "freshness",
    "inference",
)
"""The laws of which `check_structure` tests the part that needs no numbers."""

# Batch sizes that no layer is likely to have as its number of features.
_BATCH, _OTHER_BATCH = 5, 7
_LENGTH = 3


def check_structure(
    module: Any, example_input: Any, *, laws: Collection[str] | None = None
) -> None:
    """Checks what can be checked of a module without running or compiling it.

    Traces every method once and compares shapes, types and carries, then follows the
    random keys through two steps, a reset and one more step, as rollout and as replay.

    **Arguments:**

    - `module`: the module, often a whole network.
    - `example_input`: its input, any tree of arrays or `jax.ShapeDtypeStruct`s with
      leaves `[B, ...]`. Only shapes and types are looked at; any `B` will do.
    - `laws`: names of the laws to test; all of `STATIC_LAWS` by default.

    **Raises:**

    `LawViolation`, naming the innermost module that breaks the law; `ValueError` for
    an example without a batch; whatever the module raises for an input that does not
    fit, such as `CompositionError`.
    """
    expect_module("check_structure", module)
    expect_batch(example_input)
    x = with_batch(example_input, _BATCH)
    wanted = STATIC_LAWS if laws is None else laws

    def check_child(child: AnyModule, child_x: Any) -> None:
        check_structure(child, child_x, laws=laws)

    def inputs_of_children(parent: Parent[Any, Any]) -> dict[Name, Any]:
        received: dict[Name, Any] = {}
        state = jax.eval_shape(parent.initialize_state, key_shapes(_BATCH))

        def route(state: Any, x: Any) -> None:
            record_inputs(parent, state, x, received)

        jax.eval_shape(route, state, x)
        return received

    try:
        with plainly(unwrapped(module)[1]):
            for violation in _violations(module, x):
                if violation.law in wanted:
                    raise violation
    except LawViolation as violation:
        raise blame(violation, module, inputs_of_children, check_child) from None


def _violations(module: AnyModule, x: Any) -> Iterator[LawViolation]:
    yield from declaration_violations(module)
    born = trace(module.initialize_state, key_shapes(_BATCH))
    other = trace(module.initialize_state, key_shapes(_OTHER_BATCH))
    yield from _carry_shapes(born.result, other.result)

    rollout = trace(lambda state, x: module(state, x), born.result, x)
    yield from _output_shapes(rollout.result)
    yield from _same_carry(
        "carry", "a step", born.result, rollout.result.next_state, _STEP_CAUSE
    )
    reset = trace(module.reset_state, born.result)
    yield from _same_carry(
        "reset", "reset_state", born.result, reset.result, _RESET_CAUSE
    )
    extras = rollout.result.rollout_extras
    replay: Trace | None = None
    if extras is not None:
        replay = trace(module, born.result, x, extras)
        if leaked(module, rollout, replay):
            yield leak()
        yield from _output_shapes(replay.result)
        yield from _same_carry(
            "carry",
            "a replayed step",
            born.result,
            replay.result.next_state,
            _STEP_CAUSE,
        )
    yield from key_violations(born, rollout, replay, reset)
    yield from reset_violations(born.result, reset)
    if replay is not None:
        arguments = (born.result, x, extras)
        yield from replay_violations(arguments, rollout, replay)
    yield from statistics_violations(module, born.result, x, rollout, replay)
    if isinstance(module, StatelessModule | ChainedModule | UnrolledModule):
        unrolled = _trace_unroll(module, born.result, x)
        if leaked(module, rollout, unrolled):
            yield leak()
        cause = ROUTED if isinstance(module, Container) else _UNROLL_CAUSE
        yield from _unroll_shapes(rollout.result, unrolled.result, cause)


def _carry_shapes(state: Any, other: Any) -> Iterator[LawViolation]:
    cause = (
        "the carry holds something that is not per environment. Give every array the "
        "leading axis B, taken from the keys that initialize_state(keys) receives"
    )
    if jtu.tree_structure(state) != jtu.tree_structure(other):
        yield LawViolation(
            "structure", "the carry's tree depends on the batch size", cause=cause
        )
        return
    for (path, leaf), other_leaf in zip(
        jtu.tree_leaves_with_path(state), jtu.tree_leaves(other), strict=True
    ):
        grows = leaf.shape[:1] == (_BATCH,) and other_leaf.shape[:1] == (_OTHER_BATCH,)
        if not grows or leaf.shape[1:] != other_leaf.shape[1:]:
            yield LawViolation(
                "structure",
                f"expected the carry's leaf [{_BATCH}, ...] for {_BATCH} environments "
                f"and [{_OTHER_BATCH}, ...] for {_OTHER_BATCH}, got {signature(leaf)} "
                f"and {signature(other_leaf)}",
                leaf=f"state{jtu.keystr(path)}",
                cause=cause,
            )


def _output_shapes(result: Any) -> Iterator[LawViolation]:
    if not isinstance(result, StatefulModuleOutput):
        raise LawViolation(
            "structure",
            f"expected a step to return StatefulModuleOutput, got "
            f"{type(result).__name__}",
            cause="__call__ returns the value alone. Return "
            "output(value, batch=..., next_state=...)",
        )
    loss = result.regularization_loss
    if loss.shape != (_BATCH,) or loss.dtype != jnp.float32:
        yield LawViolation(
            "structure",
            f"expected float32[{_BATCH}] for a batch of {_BATCH}, got "
            f"{signature(loss)}",
            leaf=".regularization_loss",
            cause="the loss was averaged or summed over the batch. Return one number "
            "per environment; the batch is averaged by the loss function",
        )
    per_environment = {
        ".output": result.output,
        ".metrics": result.metrics,
        ".rollout_extras": result.rollout_extras,
    }
    for field, tree in per_environment.items():
        for path, leaf in jtu.tree_leaves_with_path(tree):
            if leaf.shape[:1] != (_BATCH,):
                yield LawViolation(
                    "structure",
                    f"expected the leading axis {_BATCH}, one row per environment, got "
                    f"{signature(leaf)}",
                    leaf=field + jtu.keystr(path),
                    cause="a value was reduced over the batch, or is one number for "
                    "all environments. Return one row per environment",
                )


_STEP_CAUSE = (
    "next_state is built differently from initialize_state: a dtype that promotes, "
    "an axis more, a Python number. Give both the same shapes and dtypes (a weakly "
    "typed number becomes a strong one with jnp.asarray(value, dtype))"
)
_NO_CARRY_CAUSE = (
    "output(...) was not told the next carry, or initialize_state is that of another "
    "base class. Pass next_state=... to output"
)
_RESET_CAUSE = (
    "reset_state builds another carry than initialize_state. Let both build it in "
    "one function"
)


def _same_carry(
    law: str, method: str, before: Any, after: Any, cause: str
) -> Iterator[LawViolation]:
    if jtu.tree_structure(before) != jtu.tree_structure(after):
        missing = leaf_paths(before) - leaf_paths(after)
        surplus = leaf_paths(after) - leaf_paths(before)
        difference = "; ".join(
            f"{word} {', '.join(sorted(paths))}"
            for word, paths in (("without", missing), ("with", surplus))
            if paths
        )
        yield LawViolation(
            law,
            f"{method} returns a carry of another structure"
            + (f", {difference}" if difference else "")
            + f": {jtu.tree_structure(before)} becomes {jtu.tree_structure(after)}",
            cause=_NO_CARRY_CAUSE if after == () and cause is _STEP_CAUSE else cause,
        )
        return
    for (path, old), new in zip(
        jtu.tree_leaves_with_path(before), jtu.tree_leaves(after), strict=True
    ):
        if signature(old) != signature(new):
            yield LawViolation(
                law,
                f"{method} takes {signature(old)} and returns {signature(new)}",
                leaf=f"state{jtu.keystr(path)}",
                cause=cause,
            )


def _trace_unroll(module: AnyModule, state: Any, x: Any) -> Trace:
    xs = jtu.tree_map(
        lambda leaf: jax.ShapeDtypeStruct((_LENGTH, *leaf.shape), leaf.dtype), x
    )
    is_first = jax.ShapeDtypeStruct((_LENGTH, _BATCH), jnp.bool_)

    def whole(state: Any, xs: Any, is_first: Any) -> Any:
        return unroll(module, state, xs, is_first)

    return trace(whole, state, xs, is_first)


_UNROLL_CAUSE = (
    "unroll and __call__ do not compute the same thing. unroll returns outputs "
    "[T, B, ...] and the carry [B, ...] after the last step"
)


def _unroll_shapes(
    step: StatefulModuleOutput[Any, Any], unrolled: Any, cause: str
) -> Iterator[LawViolation]:
    expected = jax.eval_shape(_over_time, step)
    if jtu.tree_structure(unrolled) != jtu.tree_structure(expected):
        yield LawViolation(
            "unroll",
            f"expected {jtu.tree_structure(expected)} as in a step, got "
            f"{jtu.tree_structure(unrolled)}",
            cause=cause,
        )
        return
    for (path, leaf), wanted in zip(
        jtu.tree_leaves_with_path(unrolled), jtu.tree_leaves(expected), strict=True
    ):
        if (leaf.shape, leaf.dtype) != (wanted.shape, wanted.dtype):
            yield LawViolation(
                "unroll",
                f"expected {signature(wanted)} for T = {_LENGTH} and B = {_BATCH}, got "
                f"{signature(leaf)}",
                leaf=jtu.keystr(path),
                cause=cause,
            )


def _over_time(step: StatefulModuleOutput[Any, Any]) -> StatefulModuleOutput[Any, Any]:
    """A step's output with a leading axis of time, except for the carry."""

    def repeat(leaf: Any) -> Any:
        return jnp.broadcast_to(leaf, (_LENGTH, *leaf.shape))

    return StatefulModuleOutput(
        step.next_state,
        *jtu.tree_map(
            repeat,
            (step.output, step.regularization_loss, step.metrics, step.rollout_extras),
        ),
    )
