"""Finds numbers that went wrong inside the compiled program, and says so outside."""

from typing import Any

import jax.numpy as jnp
import jax.tree_util as jtu
from jaxtyping import Array, Bool, Float, Int

from .._custom_types import PyTree
from .config import Scalar
from .types import Rollout, Status, TrainingState


def diagnose(
    rollout: Rollout,
    log_ratio: Float[Array, ""],
    updated: PyTree,
    tolerance: Scalar,
) -> tuple[Int[Array, ""], Int[Array, ""]]:
    """What went wrong in an iteration, if anything.

    Causes come before their consequences: a reward that is not finite makes a loss
    that is not, and an observation that is not a number makes a replay that is not.

    **Arguments:**

    - `rollout`: of the iteration.
    - `log_ratio`: of the first minibatch, from before any update.
    - `updated`: everything that the iteration has changed of the network.
    - `tolerance`: the largest `log_ratio` that is accepted.

    **Returns:**

    `(status, environment)`: a `Status`, and the first environment concerned or -1.
    """
    transitions = rollout.transitions
    bad_reward = _environments(transitions.rewards, jnp.isfinite)
    nan_observation = _environments(transitions.obs, lambda x: ~jnp.isnan(x))
    infinite_observation = _environments(transitions.obs, jnp.isfinite)
    broken_update = ~_all_finite(updated)
    mismatch = ~(log_ratio <= tolerance)
    faults = [
        (Status.REWARD_NOT_FINITE, jnp.any(bad_reward), bad_reward),
        (Status.OBSERVATION_NOT_FINITE, jnp.any(nan_observation), nan_observation),
        (
            Status.OBSERVATION_NOT_FINITE,
            (broken_update | jnp.isnan(log_ratio)) & jnp.any(infinite_observation),
            infinite_observation,
        ),
        (Status.REPLAY_MISMATCH, mismatch, None),
        (Status.UPDATE_NOT_FINITE, broken_update, None),
    ]
    status, environment = jnp.int32(Status.HEALTHY), jnp.int32(-1)
    for code, found, environments in reversed(faults):
        first = -1 if environments is None else jnp.argmax(environments)
        status = jnp.where(found, jnp.int32(code), status)
        environment = jnp.where(found, jnp.asarray(first, jnp.int32), environment)
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
            "an update made a parameter or a statistic that is not finite. Lower the "
            "learning rate, set gradient_clipping, or normalise observations and "
            "rewards"
        ),
    }
    return (
        f"training stopped after {int(training_state.env_steps)} environment steps: "
        f"{reasons[Status(int(training_state.status))]}. The last good state is in "
        "this error's .result.training_state"
    )


def _environments(tree: PyTree, good: Any) -> Bool[Array, " B"]:
    """The environments with a number, at any step, that is not good."""
    bad = [
        ~jnp.all(good(leaf).reshape((*leaf.shape[:2], -1)), axis=(0, 2))
        for leaf in jtu.tree_leaves(tree)
        if jnp.issubdtype(leaf.dtype, jnp.inexact)
    ]
    if not bad:
        shape = jtu.tree_leaves(tree)[0].shape
        return jnp.zeros(shape[1], jnp.bool_)
    return jnp.any(jnp.stack(bad), axis=0)


def _all_finite(tree: PyTree) -> Array:
    """Whether every floating-point number in a tree is finite."""
    finite = [
        jnp.all(jnp.isfinite(leaf))
        for leaf in jtu.tree_leaves(tree)
        if jnp.issubdtype(leaf.dtype, jnp.inexact)
    ]
    return jnp.all(jnp.array(finite)) if finite else jnp.array(True)
