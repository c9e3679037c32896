"""The laws of time and of gradients: unroll, gradient, re-weighting."""

from collections.abc import Callable
from typing import Any, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.tree_util as jtu
import numpy as np
from jaxtyping import Array, Float

from ..networks._trainable import partition_trainable
from ..networks.types import (
    ChainedModule,
    PPONetworkOutput,
    SampledAction,
    StatefulModule,
    StatefulModuleOutput,
    StatelessModule,
    UnrolledModule,
)
from ..networks.unroll import unroll as unroll_fast, unroll_by_step
from ._compare import difference, Difference, tolerance
from ._trial import Trial
from .violation import LawViolation


AnyModule = StatefulModule[Any, Any, Any]

# Gradients are sums over time and batch, whose rounding adds up.
_GRADIENT_SLACK = 20.0


def unroll(trial: Trial) -> None:
    """`unroll` gives what the step-by-step loop gives."""
    recorded = trial.recorded
    rolled, replayed, _ = _through_time(trial, unroll_fast)
    for mode, found in (("rollout", rolled), ("replay", replayed)):
        _expect_recorded(
            mode, "next_state", recorded.next_state, found.next_state, batch_axis=0
        )
        for field in ("output", "regularization_loss", "metrics"):
            _expect_recorded(
                mode, field, getattr(recorded, field), getattr(found, field)
            )
    _expect_recorded(
        "rollout", "rollout_extras", recorded.rollout_extras, rolled.rollout_extras
    )


def _expect_recorded(
    mode: str, field: str, expected: Any, found: Any, batch_axis: int = 1
) -> None:
    different = difference(expected, found, batch_axis=batch_axis, slack=5.0)
    if different is not None:
        raise LawViolation(
            "unroll",
            f"in the {mode}, unroll differs from the step-by-step loop: {different}",
            leaf=f".{field}{different.leaf}",
            environment=different.environment,
            size=different.size,
            cause="the carry is not reset before a step with is_first (also the first "
            "one), is reset after it, or the module mixes the axes T and B. In a "
            "module without a carry or with `apply`, rows may come from any step: "
            "treat each row by itself",
        )


def gradient(trial: Trial) -> None:
    """The gradient through `unroll` is that through the loop, and finite."""
    *_, fast = _through_time(trial, unroll_fast)
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
    *_, by_step = _through_time(trial, unroll_by_step)
    different = _gradient_difference(by_step, fast)
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


def reweighting(trial: Trial) -> None:
    """Under other weights and inputs, extras lock the action and nothing else."""
    if not jtu.tree_leaves(trial.recorded.rollout_extras):
        return
    module = _perturbed(trial)
    moved = False
    gradient_size = 0.0
    changed: dict[str, bool] = {}
    for index, step in enumerate(trial.steps):
        other_x = trial.steps[(index + 1) % trial.length].x
        x = jtu.tree_map(
            lambda new, old: new if eqx.is_inexact_array(new) else old, other_x, step.x
        )
        without, locked, slope = _with_and_without(
            module, trial.other_evolved, x, step.rollout.rollout_extras
        )
        _expect_no_smuggling(without, locked)
        recorded = _sampled(step.rollout.output)
        _expect_recorded_actions(recorded, locked[2])
        for path, likelihood in _likelihoods(recorded).items():
            new = _likelihoods(locked[2])[path]
            differs = difference(likelihood, new) is not None
            changed[path] = changed.get(path, False) or differs
        moved = moved or bool(jtu.tree_leaves(slope))
        gradient_size = max(gradient_size, _size(slope))
    if moved:
        _expect_likelihoods_to_move(changed, gradient_size)


def _expect_no_smuggling(without: Any, locked: Any) -> None:
    (kept, slope, _), (kept_locked, slope_locked, _) = without, locked
    different = difference(kept, kept_locked)
    what = "value"
    if different is None:
        different, what = _gradient_difference(slope, slope_locked), "gradient"
    if different is None:
        return
    raise LawViolation(
        "re-weighting",
        f"under new weights, the {what} with recorded extras differs from that "
        f"without: {different}",
        leaf=different.leaf,
        environment=different.environment if what == "value" else None,
        size=different.size,
        cause="the module takes an output of the rollout from its extras, so the "
        "replay's output does not depend on the weights as it should, and the gradient "
        "is wrong. Compute the output from the input; only an action (inside "
        "SampledAction) may be locked",
    )


def _expect_recorded_actions(recorded: list[Any], locked: list[Any]) -> None:
    actions = [{"action": sampled["action"]} for sampled in recorded]
    found = [{"action": sampled["action"]} for sampled in locked]
    different = difference(actions, found)
    if different is not None:
        raise LawViolation(
            "re-weighting",
            f"with recorded extras the sampler returns another action: {different}",
            leaf=different.leaf,
            environment=different.environment,
            size=different.size,
            cause="the sampler ignores its rollout_extras and samples anew. Use them: "
            "`raw = sample if rollout_extras is None else rollout_extras`",
        )


def _expect_likelihoods_to_move(changed: dict[str, bool], gradient_size: float) -> None:
    cause = (
        "the log-likelihood comes from the extras, or through stop_gradient. Record "
        "the raw action, and compute its log-likelihood from the input at every call: "
        "PPO's ratio is that of the new weights to the old"
    )
    for path, differs in changed.items():
        if not differs:
            raise LawViolation(
                "re-weighting",
                "the log-likelihood of the recorded action is the same under other "
                "weights and inputs",
                leaf=path,
                cause=cause,
            )
    if changed and gradient_size == 0.0:
        raise LawViolation(
            "re-weighting",
            "the log-likelihood of the recorded action has a gradient of 0",
            leaf=next(iter(changed)),
            cause=cause,
        )


# One pass through time, compiled once for each way of unrolling.


def _through_time(trial: Trial, method: Callable[..., Any]) -> tuple[Any, Any, Any]:
    if method not in trial.passes:
        trial.passes[method] = _pass(
            method,
            trial.module,
            trial.evolved,
            trial.xs,
            trial.is_first,
            trial.recorded.rollout_extras,
        )
    return trial.passes[method]


@eqx.filter_jit
def _pass(
    method: Callable[..., StatefulModuleOutput[Any, Any]],
    module: AnyModule,
    state: Any,
    xs: Any,
    is_first: Array,
    rollout_extras: Any,
) -> tuple[Any, Any, Any]:
    """What the rollout and the replay return, and the replay's gradient.

    Gradients are those of one number made from every floating-point output, with
    respect to the parameters, the initial carry and the inputs.
    """
    differentiable, build = _split_differentiable(module, state, xs)

    def loss(differentiable: Any) -> tuple[Array, Any]:
        module, state, xs = build(differentiable)
        rolled = replayed = method(module, state, xs, is_first)
        if rollout_extras is not None:
            replayed = method(module, state, xs, is_first, rollout_extras)
        outcome = (replayed.next_state, replayed.output, replayed.regularization_loss)
        return _weighted_sum(outcome), (rolled, replayed)

    gradients, (rolled, replayed) = jax.grad(loss, has_aux=True)(differentiable)
    return rolled, replayed, gradients


@eqx.filter_jit
def _with_and_without(
    module: AnyModule, state: Any, x: Any, rollout_extras: Any
) -> tuple[Any, Any, Any]:
    """One step with and without extras: what must agree, its gradient, the samples;
    and the gradient of the log-likelihoods with extras."""
    differentiable, build = _split_differentiable(module, state, x)

    def free(differentiable: Any, extras: Any) -> tuple[Array, Any]:
        result = build(differentiable)
        stepped = result[0](result[1], result[2], extras)
        kept = {
            "next_state": stepped.next_state,
            "output": _without_samples(stepped.output),
            "regularization_loss": stepped.regularization_loss,
        }
        return _weighted_sum(kept), (kept, _sampled(stepped.output))

    def likelihood(differentiable: Any) -> Array:
        _, (_, sampled) = free(differentiable, rollout_extras)
        return _weighted_sum(_likelihoods(sampled))

    slope = jax.grad(free, has_aux=True)
    free_slope, (kept, sampled) = slope(differentiable, None)
    locked_slope, (kept_locked, locked) = slope(differentiable, rollout_extras)
    return (
        (kept, free_slope, sampled),
        (kept_locked, locked_slope, locked),
        jax.grad(likelihood)(differentiable),
    )


def _split_differentiable(
    module: AnyModule, state: Any, x: Any
) -> tuple[Any, Callable[[Any], tuple[AnyModule, Any, Any]]]:
    parameters, rest = partition_trainable(module)
    (free_state, free_x), fixed = eqx.partition((state, x), eqx.is_inexact_array)

    def build(differentiable: Any) -> tuple[AnyModule, Any, Any]:
        module = eqx.combine(differentiable["parameters"], rest)
        joined = eqx.combine((differentiable["state"], differentiable["x"]), fixed)
        return module, *joined

    return {"parameters": parameters, "state": free_state, "x": free_x}, build


def _weighted_sum(tree: Any) -> Float[Array, ""]:
    """One number that every floating-point number of a tree moves differently."""
    total = jnp.zeros((), jnp.float32)
    for leaf in jtu.tree_leaves(tree):
        if eqx.is_inexact_array(leaf):
            weights = jnp.cos(1.0 + jnp.arange(leaf.size)).reshape(leaf.shape)
            total = total + jnp.sum(weights.astype(jnp.float32) * leaf.astype(jnp.float32))
    return total


def _is_sampled(node: Any) -> bool:
    return isinstance(node, SampledAction | PPONetworkOutput)


def _without_samples(output: Any) -> Any:
    """The output without what a sampler decides."""

    def keep(node: Any) -> Any:
        if isinstance(node, PPONetworkOutput):
            return node.value_estimates
        return None if isinstance(node, SampledAction) else node

    return jtu.tree_map(keep, output, is_leaf=_is_sampled)


def _sampled(output: Any) -> list[dict[str, Any]]:
    """Actions and log-likelihoods of every sampler in an output."""
    sampled: list[dict[str, Any]] = []
    for node in jtu.tree_leaves(output, is_leaf=_is_sampled):
        if isinstance(node, SampledAction):
            sampled.append({"action": node.action, "log": node.log_likelihood})
        elif isinstance(node, PPONetworkOutput):
            sampled.append({"action": node.actions, "log": node.loglikelihoods})
    return sampled


def _likelihoods(sampled: list[dict[str, Any]]) -> dict[str, Any]:
    """Log-likelihoods by their path."""
    logs = [{"log_likelihood": one["log"]} for one in sampled]
    return {jtu.keystr(path): leaf for path, leaf in jtu.tree_leaves_with_path(logs)}


def _perturbed(trial: Trial) -> AnyModule:
    """The module with other parameters, near enough to stay in their domain."""
    random = trial.random("weights")
    parameters, rest = partition_trainable(trial.module)

    def perturb(leaf: Array) -> Array:
        values = np.asarray(leaf, np.float64)
        scale = 0.1 * max(float(np.sqrt(np.mean(np.square(values)))), 0.1)
        moved = values + scale * random.standard_normal(values.shape)
        return jnp.asarray(moved.astype(leaf.dtype))

    return cast(AnyModule, eqx.combine(jtu.tree_map(perturb, parameters), rest))


def _size(tree: Any) -> float:
    return max(
        (float(np.max(np.abs(leaf), initial=0.0)) for leaf in jtu.tree_leaves(tree)),
        default=0.0,
    )


def _gradient_difference(expected: Any, found: Any) -> Difference | None:
    """As `difference`, with a scale that small leaves share with large ones."""
    floor = 1e-3 * _size(expected)
    pairs = zip(
        jtu.tree_leaves_with_path(expected), jtu.tree_leaves(found), strict=True
    )
    for (path, old), new in pairs:
        old, new = np.asarray(old, np.float64), np.asarray(new, np.float64)
        allowed = _GRADIENT_SLACK * tolerance(jnp.float32) * max(_size(old), floor)
        off = np.abs(old - new)
        if np.any(off > allowed):
            place = np.unravel_index(int(np.argmax(off)), off.shape)
            return Difference(
                jtu.keystr(path), 0, float(off[place]), str(old[place]), str(new[place])
            )
    return None
