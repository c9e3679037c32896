"""Numbers for the log, from one iteration."""

from collections.abc import Mapping
from typing import Any, cast

import jax.numpy as jnp
import jax.tree_util as jtu
from jaxtyping import Array, Bool

from .._custom_types import PyTree
from .config import LoggingLevel, PPOConfig
from .types import Rollout


def iteration_metrics(
    update_metrics: Mapping[str, PyTree],
    rollout: Rollout,
    parameters: PyTree,
    config: PPOConfig,
) -> dict[str, Array]:
    """Sums up one iteration as scalars under flat names.

    **Arguments:**

    - `update_metrics`: from `update`, one row per minibatch.
    - `rollout`: what was collected.
    - `parameters`: after the updates.
    - `config`: its logging level says which groups are wanted.

    **Returns:**

    Scalars. `replay/log_ratio_max` is from the first minibatch, before any weight has
    changed, and so measures the replay itself; `replay/log_ratio_last` is from the
    last and must move. `episode/...` is about the episodes that ended in this rollout,
    NaN if none did.
    """
    ratios = update_metrics["replay/log_ratio"]
    metrics: dict[str, Array] = {
        "replay/log_ratio_max": ratios[0],
        "replay/log_ratio_last": ratios[-1],
    }
    level, percentiles = config.logging_level, config.logging_percentiles
    for name, value in update_metrics.items():
        if name != "replay/log_ratio":
            summarize(metrics, name, value, percentiles)
    transitions = rollout.transitions
    _episodes(metrics, transitions.metrics["episode"], transitions.done)
    if LoggingLevel.ENV_METRICS in level:
        summarize(metrics, "env", transitions.metrics["env"], percentiles)
    if LoggingLevel.NETWORK_METRICS in level:
        summarize(metrics, "net", transitions.metrics["net"], percentiles)
    if LoggingLevel.ROLLOUT_STATS in level:
        summarize(metrics, "rollout_batch/reward", transitions.rewards, percentiles)
        actions = transitions.network_output.actions
        summarize(metrics, "rollout_batch/action", actions, percentiles)
        metrics["rollout_batch/done_rate"] = jnp.mean(
            transitions.done, dtype=jnp.float32
        )
        metrics["rollout_batch/truncation_rate"] = jnp.mean(
            transitions.truncated, dtype=jnp.float32
        )
    if LoggingLevel.ROLLOUT_OBS in level:
        summarize(metrics, "rollout_batch/obs", transitions.obs, percentiles)
    if LoggingLevel.ACTOR_EXTRA in level:
        log_likelihoods = transitions.network_output.loglikelihoods
        summarize(metrics, "loglikelihood", log_likelihoods, percentiles)
    if LoggingLevel.CRITIC_EXTRA in level:
        values = transitions.network_output.value_estimates
        summarize(metrics, "losses/predicted_value", values, percentiles)
    if LoggingLevel.WEIGHTS in level:
        weights = [leaf.ravel() for leaf in jtu.tree_leaves(parameters)]
        if weights:
            summarize(metrics, "weights", jnp.concatenate(weights), percentiles)
    return metrics


def summarize(
    metrics: dict[str, Array],
    name: str,
    value: PyTree,
    percentiles: tuple[int, ...] | None = None,
) -> None:
    """Adds the distribution of `value` to `metrics`.

    **Arguments:**

    - `metrics`: added to in place.
    - `name`: of the value; the entries of a mapping are added as `name/key`.
    - `value`: an array of any shape, or a mapping of such.
    - `percentiles`: give `name/p50`, ...; without them, `name/mean` and `name/std`.
      Booleans give the fraction that is True, as `name`.
    """
    if isinstance(value, Mapping):
        for key, entry in cast(Mapping[str, Any], value).items():
            summarize(metrics, f"{name}/{key}", entry, percentiles)
        return
    if not hasattr(value, "dtype"):
        for path, leaf in jtu.tree_leaves_with_path(value):
            place = jtu.keystr(path, simple=True, separator="/")
            summarize(metrics, f"{name}/{place}", leaf, percentiles)
        return
    if value.dtype == jnp.bool_:
        metrics[name] = jnp.mean(value, dtype=jnp.float32)
        return
    numbers = value.astype(jnp.float32)
    if percentiles:
        levels = jnp.percentile(numbers, jnp.array(percentiles, jnp.float32))
        for percentile, level in zip(percentiles, levels, strict=True):
            metrics[f"{name}/p{percentile}"] = level
    else:
        metrics[f"{name}/mean"] = jnp.mean(numbers)
        metrics[f"{name}/std"] = jnp.std(numbers)


def _episodes(
    metrics: dict[str, Array], episode: Mapping[str, Array], done: Bool[Array, "T B"]
) -> None:
    """Means over the episodes that ended."""
    count = jnp.sum(done.astype(jnp.float32))
    for name, value in episode.items():
        total = jnp.sum(jnp.where(done, value.astype(jnp.float32), 0))
        metrics[f"episode/{name}/mean"] = total / count
    metrics["episode/count"] = count
