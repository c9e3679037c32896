"""The laws of time: unroll, and the gradient through it."""

from collections.abc import Callable
from typing import Any

import jax
import jax.tree_util as jtu
import numpy as np
from jaxtyping import Array

from ..networks._routing import Container
from ..networks.types import (
    AnyModule,
    ChainedModule,
    StatefulModuleOutput,
    StatelessModule,
    UnrolledModule,
)
from ..networks.unroll import unroll as unroll_fast, unroll_by_step
from ._causes import ROUTED
from ._compare import difference
from ._compile import unoptimised
from ._gradients import gradient_difference, split_differentiable, weighted_sum
from ._trial import Trial
from .violation import LawViolation


def unroll(trial: Trial) -> None:
    """`unroll` gives what the step-by-step loop gives."""
    rolled, replayed, _ = _pass_of(trial)
    for mode, found in (("rollout", rolled), ("replay", replayed)):
        _expect_recorded(trial, mode, "next_state", found, batch_axis=0)
        for field in ("output", "regularization_loss", "metrics"):
            _expect_recorded(trial, mode, field, found)
    _expect_recorded(trial, "rollout", "rollout_extras", rolled)


_MERGED = (
    "the steps of an unroll come as one batch of T * B rows, and a row looks at other "
    "rows or at how many there are. Rows may come from any step: treat each by itself"
)
_CARRIED = (
    "the carry is not reset before a step with is_first (also the first one), is reset "
    "after it, or the module mixes the axes T and B. In a module with `apply`, rows "
    "may come from any step: treat each row by itself"
)


def _expect_recorded(
    trial: Trial, mode: str, field: str, found: Any, batch_axis: int = 1
) -> None:
    different = difference(
        getattr(trial.recorded, field),
        getattr(found, field),
        batch_axis=batch_axis,
        slack=5.0,
    )
    if different is not None:
        raise LawViolation(
            "unroll",
            f"in the {mode}, unroll differs from the step-by-step loop: {different}",
            leaf=f".{field}{different.leaf}",
            environment=different.environment,
            size=different.size,
            cause=_cause(trial.module),
        )


def _cause(module: AnyModule) -> str:
    if isinstance(module, StatelessModule):
        return _MERGED
    return ROUTED if isinstance(module, Container) else _CARRIED


def gradient(trial: Trial) -> None:
    """The gradient through `unroll` is that through the loop, and finite."""
    *_, fast = _pass_of(trial)
    for path, leaf in jtu.tree_leaves_with_path(fast):
        if not np.all(np.isfinite(np.asarray(leaf, np.float64))):
            raise LawViolation(
                "gradient",
                "the gradient through unroll is not finite",
                leaf=jtu.keystr(path),
                cause="a branch that is not taken still has a derivative: the root or "
                "the logarithm of 0, or a division by 0, under jnp.where. Make the "
                "argument safe inside the where, or bound it away from 0",
            )
    if not isinstance(trial.module, StatelessModule | ChainedModule | UnrolledModule):
        return
    by_step = _gradient_by_step(
        trial.module,
        trial.evolved,
        trial.xs,
        trial.is_first,
        trial.recorded.rollout_extras,
    )
    different = gradient_difference(by_step, fast)
    if different is not None:
        raise LawViolation(
            "gradient",
            "the gradient through unroll differs from that through the step-by-step "
            f"loop: {different}",
            leaf=different.leaf,
            size=different.size,
            cause="a stop_gradient, a custom derivative or a truncation that stands in "
            "one of unroll and __call__ only",
        )


def _pass_of(trial: Trial) -> tuple[Any, Any, Any]:
    if trial.unrolled is None:
        trial.unrolled = _pass(
            trial.module,
            trial.evolved,
            trial.xs,
            trial.is_first,
            trial.recorded.rollout_extras,
        )
    return trial.unrolled


@unoptimised
def _pass(
    module: AnyModule, state: Any, xs: Any, is_first: Array, rollout_extras: Any
) -> tuple[Any, Any, Any]:
    """What `unroll` returns as rollout and as replay, and the replay's gradient."""
    rolled = unroll_fast(module, state, xs, is_first)
    gradients, replayed = _gradient_through(
        unroll_fast, module, state, xs, is_first, rollout_extras
    )
    return rolled, replayed, gradients


@unoptimised
def _gradient_by_step(
    module: AnyModule, state: Any, xs: Any, is_first: Array, rollout_extras: Any
) -> Any:
    gradients, _ = _gradient_through(
        unroll_by_step, module, state, xs, is_first, rollout_extras
    )
    return gradients


def _gradient_through(
    method: Callable[..., StatefulModuleOutput[Any, Any]],
    module: AnyModule,
    state: Any,
    xs: Any,
    is_first: Array,
    rollout_extras: Any,
) -> tuple[Any, StatefulModuleOutput[Any, Any]]:
    """The gradient of one number made from every floating-point output of the replay,
    with respect to the parameters, the initial carry and the inputs."""
    differentiable, build = split_differentiable(module, state, xs)

    def loss(differentiable: Any) -> tuple[Array, Any]:
        module, state, xs = build(differentiable)
        replayed = method(module, state, xs, is_first, rollout_extras)
        outcome = (replayed.next_state, replayed.output, replayed.regularization_loss)
        return weighted_sum(outcome), replayed

    return jax.grad(loss, has_aux=True)(differentiable)
