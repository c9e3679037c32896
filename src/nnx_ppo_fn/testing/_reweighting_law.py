"""The law of re-weighting."""

from typing import Any, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.tree_util as jtu
import numpy as np
from jaxtyping import Array

from ..networks._trainable import partition_trainable
from ..networks.types import AnyModule, StatefulModuleOutput
from ._causes import IGNORED_ACTION, RECORDED_LIKELIHOOD, SMUGGLED_OUTPUT
from ._compare import difference
from ._compile import unoptimised
from ._dependence import used_leaves
from ._gradients import gradient_difference, largest, split_differentiable, weighted_sum
from ._likelihood_law import expect_right_likelihoods
from ._sampled import likelihoods, sampled, without_samples
from ._traces import trace
from ._trial import Trial
from .violation import LawViolation


def reweighting(trial: Trial) -> None:
    """Under other weights and inputs, extras lock the action and nothing else."""
    if not jtu.tree_leaves(trial.recorded.rollout_extras):
        return
    module = _perturbed(trial)
    changed: dict[str, bool] = {}
    certain: dict[str, bool] = {}
    slopes: list[Any] = []
    for index, step in enumerate(trial.steps):
        other = trial.steps[(index + 1) % trial.length]
        x = jtu.tree_map(_other_if_float, step.x, other.x)
        without, locked, slope = _with_and_without(
            module, trial.other_evolved, x, step.rollout.rollout_extras
        )
        _expect_no_smuggling(without, locked)
        recorded, found = sampled(step.rollout.output), locked[2]
        _expect_recorded_actions(recorded, found)
        renewed = likelihoods(found)
        for path, old in likelihoods(recorded).items():
            new = renewed[path]
            differs = difference(old, new) is not None
            changed[path] = changed.get(path, False) or differs
            certain[path] = certain.get(path, True) and largest((old, new)) == 0.0
        slopes.append(slope)
    if any(certain.values()):
        # With nothing to choose from, a right likelihood is 0 whatever the input.
        computed = _computed_from_input(trial)
        changed = {
            path: differs
            for path, differs in changed.items()
            if not (certain[path] and path in computed)
        }
    if jtu.tree_leaves(slopes):
        _expect_likelihoods_to_move(changed, largest(slopes))
    expect_right_likelihoods(trial)


def _computed_from_input(trial: Trial) -> set[str]:
    """The paths of the log-likelihoods that a replay computes from its input."""
    step = trial.steps[0]

    def replayed(x: Any) -> dict[str, Any]:
        again = trial.module(step.before, x, step.rollout.rollout_extras)
        return likelihoods(sampled(again.output))

    traced = trace(replayed, step.x)
    return {
        path
        for path in traced.result
        if used_leaves(traced, (step.x,), f"[{path!r}]".__eq__)
    }


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
        cause=SMUGGLED_OUTPUT,
    )


def _expect_recorded_actions(recorded: list[Any], locked: list[Any]) -> None:
    actions = [{"action": one["action"]} for one in recorded]
    found = [{"action": one["action"]} for one in locked]
    different = difference(actions, found)
    if different is not None:
        raise LawViolation(
            "re-weighting",
            f"with recorded extras the sampler returns another action: {different}",
            leaf=f"sampler{different.leaf}",
            environment=different.environment,
            size=different.size,
            cause=IGNORED_ACTION,
        )


def _expect_likelihoods_to_move(changed: dict[str, bool], gradient_size: float) -> None:
    for path, differs in changed.items():
        if not differs:
            raise LawViolation(
                "re-weighting",
                "the log-likelihood of the recorded action is the same under other "
                "weights and inputs",
                leaf=f"sampler{path}",
                cause=RECORDED_LIKELIHOOD,
            )
    if changed and gradient_size == 0.0:
        raise LawViolation(
            "re-weighting",
            "the log-likelihood of the recorded action has a gradient of 0",
            leaf=f"sampler{next(iter(changed))}",
            cause=RECORDED_LIKELIHOOD,
        )


@unoptimised
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
            without_samples(stepped.output),
            stepped.regularization_loss,
            {},
        )
        return weighted_sum(kept), (kept, sampled(stepped.output))

    def likelihood(differentiable: Any) -> Array:
        _, (_, locked) = free(differentiable, rollout_extras)
        return weighted_sum(likelihoods(locked))

    slope = jax.grad(free, has_aux=True)
    free_slope, (kept, drawn) = slope(differentiable, None)
    locked_slope, (kept_locked, locked) = slope(differentiable, rollout_extras)
    return (
        (kept, free_slope, drawn),
        (kept_locked, locked_slope, locked),
        jax.grad(likelihood)(differentiable),
    )


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
