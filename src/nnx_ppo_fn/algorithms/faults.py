"""Finds numbers that went wrong inside the compiled program, and says so outside."""

from collections.abc import Callable
from typing import TypeAlias

import jax
import jax.numpy as jnp
import jax.tree_util as jtu
from jaxtyping import Array, Bool, Float, Int

from .._custom_types import PyTree
from .config import Scalar
from .types import Rollout, Status, TrainingState


def diagnose(
    rollout: Rollout,
    log_ratio: Float[Array, ""],
    before: PyTree,
    after: PyTree,
    tolerance: Scalar,
) -> tuple[Int[Array, ""], Int[Array, ""]]:
    """What went wrong in an iteration, if anything.

    Causes are told from their consequences: an observation that is not a number makes
    actions, and so rewards, that are not, later on; either makes a replay that does not
    agree, and an update that is not finite.

    **Arguments:**

    - `rollout`: of the iteration.
    - `log_ratio`: of the first minibatch, from before any update.
    - `before`, `after`: all that the iteration changes of the network and of the
      optimiser. What was infinite before, such as a bound, may stay so.
    - `tolerance`: the largest `log_ratio` that is accepted.

    **Returns:**

    `(status, environment)`: a `Status`, and the first environment concerned or -1.
    """
    broken_update = _newly_infinite(before, after)
    bad_reward = _bad(rollout.transitions.rewards, jnp.isfinite)
    # An infinity is an observation like any other where the network can take it.
    bad_observation = _bad_observations(rollout, lambda x: ~jnp.isnan(x)) | (
        (broken_update | jnp.isnan(log_ratio))
        & _bad_observations(rollout, jnp.isfinite)
    )
    # The observation of a step is seen before its reward is given.
    observation_first = _first(bad_observation) <= _first(bad_reward)
    faults = [
        (
            Status.OBSERVATION_NOT_FINITE,
            jnp.any(bad_observation) & observation_first,
            _environment(bad_observation),
        ),
        (Status.REWARD_NOT_FINITE, jnp.any(bad_reward), _environment(bad_reward)),
        (
            Status.OBSERVATION_NOT_FINITE,
            jnp.any(bad_observation),
            _environment(bad_observation),
        ),
        (Status.REPLAY_MISMATCH, ~(log_ratio <= tolerance), jnp.int32(-1)),
        (Status.UPDATE_NOT_FINITE, broken_update, jnp.int32(-1)),
    ]
    status, environment = jnp.int32(Status.HEALTHY), jnp.int32(-1)
    for code, found, where in reversed(faults):
        status = jnp.where(found, jnp.int32(code), status)
        environment = jnp.where(found, where, environment)
    return status, environment


def explain(training_state: TrainingState, log_ratio: float, tolerance: Scalar) -> str:
    """What a fault means, and what to do about it.

    **Arguments:**

    - `training_state`: the last good state, with `status` set.
    - `log_ratio`: `replay/log_ratio_max` of the iteration that failed.
    - `tolerance`: the largest that is accepted.
    """
    environment = int(training_state.fault_environment)
    reasons = {
        Status.REWARD_NOT_FINITE: (
            f"the reward of environment {environment} is not finite. Look at the terms "
            "of the reward, above all at divisions and logarithms"
        ),
        Status.OBSERVATION_NOT_FINITE: (
            f"the observation of environment {environment} is not finite. Look at the "
            "simulator's step size and at divisions in the observation"
        ),
        Status.REPLAY_MISMATCH: (
            "the replay with unchanged weights does not reproduce the rollout: a "
            f"log-likelihood is off by {log_ratio:.3g}, more than "
            f"{float(tolerance):.3g}. Some module looks at more than its own "
            "environment, or draws noise that its carry does not determine. "
            "nnx_ppo_fn.check_module finds out which"
        ),
        Status.UPDATE_NOT_FINITE: (
            "an update made a parameter, a statistic or a moment of the optimiser that "
            "is not finite. Lower the learning rate, set gradient_clipping, or "
            "normalise observations and rewards; update_statistics must leave out NaN"
        ),
    }
    return (
        f"training stopped after {int(training_state.env_steps)} environment steps: "
        f"{reasons[Status(int(training_state.status))]}"
    )


Good: TypeAlias = Callable[[Array], Bool[Array, "..."]]
"""Says of each number whether it is good."""


def _bad(tree: PyTree, good: Good) -> Bool[Array, "T B"]:
    """The steps and environments with a number that is not good."""
    leaves = jtu.tree_leaves(tree)
    bad = jnp.zeros(leaves[0].shape[:2], jnp.bool_)
    for leaf in leaves:
        if jnp.issubdtype(leaf.dtype, jnp.inexact):
            bad = bad | ~jnp.all(good(leaf.reshape((*bad.shape, -1))), axis=-1)
    return bad


def _bad_observations(rollout: Rollout, good: Good) -> Bool[Array, "T_and_1 B"]:
    """Bad observations, with a row for what follows the last step.

    The final observation of a truncated episode is not recorded; the critic's value of
    it tells.
    """
    transitions = rollout.transitions
    last = jtu.tree_map(lambda leaf: leaf[None], rollout.last_observation)
    bad = jnp.concatenate([_bad(transitions.obs, good), _bad(last, good)])
    final = transitions.truncated & _bad(transitions.bootstrap_value, good)
    return bad.at[1:].set(bad[1:] | final)


def _first(bad: Bool[Array, "rows B"]) -> Int[Array, ""]:
    """The first bad row; the number of rows if there is none."""
    rows = jnp.any(bad, axis=1)
    return jnp.where(jnp.any(rows), jnp.argmax(rows), len(bad)).astype(jnp.int32)


def _environment(bad: Bool[Array, "rows B"]) -> Int[Array, ""]:
    """The first environment of the first bad row."""
    row = jnp.minimum(_first(bad), len(bad) - 1)
    return jnp.argmax(bad[row]).astype(jnp.int32)


def _newly_infinite(before: PyTree, after: PyTree) -> Bool[Array, ""]:
    """Whether a number that was finite is no longer."""
    old, new = _numbers(before), _numbers(after)
    return jnp.any(jnp.isfinite(old) & ~jnp.isfinite(new))


def _numbers(tree: PyTree) -> Float[Array, " numbers"]:
    """All floats of a tree in a row.

    The barrier keeps the compiler from taking them apart again: many small reductions
    take long to compile.
    """
    leaves: list[Array] = []
    for leaf in jtu.tree_leaves(tree):
        if jnp.issubdtype(leaf.dtype, jnp.complexfloating):
            leaves += [leaf.real.ravel(), leaf.imag.ravel()]
        elif jnp.issubdtype(leaf.dtype, jnp.floating):
            leaves.append(leaf.ravel())
    any_double = any(leaf.dtype == jnp.float64 for leaf in leaves)
    wide = jnp.float64 if any_double else jnp.float32
    row = [jnp.zeros(1, wide), *(leaf.astype(wide) for leaf in leaves)]
    return jax.lax.optimization_barrier(jnp.concatenate(row))
