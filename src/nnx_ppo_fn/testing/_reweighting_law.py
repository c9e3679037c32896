"""The law of re-weighting."""

from typing import Any, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.tree_util as jtu
import numpy as np
from jaxtyping import Array

from ..networks._trainable import partition_trainable
from ..networks.types import (
    AnyModule,
    PPONetworkOutput,
    SampledAction,
    StatefulModuleOutput,
)
from ._compare import difference
from ._compile import compiled
from ._gradients import gradient_difference, largest, split_differentiable, weighted_sum
from ._trial import Trial
from .violation import LawViolation


def reweighting(trial: Trial) -> None:
    """Under other weights and inputs, extras lock the action and nothing else."""
    if not jtu.tree_leaves(trial.recorded.rollout_extras):
        return
    module = _perturbed(trial)
    changed: dict[str, bool] = {}
    slopes: list[Any] = []
    for index, step in enumerate(trial.steps):
        other = trial.steps[(index + 1) % trial.length]
        x = jtu.tree_map(_other_if_float, step.x, other.x)
        without, locked, slope = _with_and_without(
            module, trial.other_evolved, x, step.rollout.rollout_extras
        )
        _expect_no_smuggling(without, locked)
        recorded, found = _sampled(step.rollout.output), locked[2]
        _expect_recorded_actions(recorded, found)
        likelihoods = _likelihoods(found)
        for path, old in _likelihoods(recorded).items():
            differs = difference(old, likelihoods[path]) is not None
            changed[path] = changed.get(path, False) or differs
        slopes.append(slope)
    if jtu.tree_leaves(slopes):
        _expect_likelihoods_to_move(changed, largest(slopes))


def _other_if_float(x: Array, other: Array) -> Array:
    """Another input, which keeps to the masks and indices of the recorded one."""
    return other if eqx.is_inexact_array(x) else x


def _expect_no_smuggling(without: Any, locked: Any) -> None:
    (kept, slope, _), (kept_locked, slope_locked, _) = without, locked
    different = difference(kept, kept_locked)
    what = "value"
    if different is None:
        different, what = gradient_difference(slope, slope_locked), "gradient"
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
            leaf=f"sampler{different.leaf}",
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
                leaf=f"sampler{path}",
                cause=cause,
            )
    if changed and gradient_size == 0.0:
        raise LawViolation(
            "re-weighting",
            "the log-likelihood of the recorded action has a gradient of 0",
            leaf=f"sampler{next(iter(changed))}",
            cause=cause,
        )


@compiled
def _with_and_without(
    module: AnyModule, state: Any, x: Any, rollout_extras: Any
) -> tuple[Any, Any, Any]:
    """One step with and without extras: what must agree, its gradient, the samples;
    and the gradient of the log-likelihoods with extras."""
    differentiable, build = split_differentiable(module, state, x)

    def free(differentiable: Any, extras: Any) -> tuple[Array, Any]:
        module, state, x = build(differentiable)
        stepped = module(state, x, extras)
        kept = StatefulModuleOutput(
            stepped.next_state,
            _without_samples(stepped.output),
            stepped.regularization_loss,
            {},
        )
        return weighted_sum(kept), (kept, _sampled(stepped.output))

    def likelihood(differentiable: Any) -> Array:
        _, (_, sampled) = free(differentiable, rollout_extras)
        return weighted_sum(_likelihoods(sampled))

    slope = jax.grad(free, has_aux=True)
    free_slope, (kept, sampled) = slope(differentiable, None)
    locked_slope, (kept_locked, locked) = slope(differentiable, rollout_extras)
    return (
        (kept, free_slope, sampled),
        (kept_locked, locked_slope, locked),
        jax.grad(likelihood)(differentiable),
    )


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
