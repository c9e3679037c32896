"""Numbers for the log, from one iteration."""

from collections.abc import Mapping

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
            metrics |= summarize(name, value, percentiles)
    transitions = rollout.transitions
    metrics |= _ended_episodes(transitions.metrics["episode"], transitions.done)
    if LoggingLevel.ENV_METRICS in level:
        metrics |= summarize("env", transitions.metrics["env"], percentiles)
    if LoggingLevel.NETWORK_METRICS in level:
        metrics |= summarize("net", transitions.metrics["net"], percentiles)
    if LoggingLevel.ROLLOUT_STATS in level:
        metrics |= summarize("rollout_batch/reward", transitions.rewards, percentiles)
        actions = transitions.network_output.actions
        metrics |= summarize("rollout_batch/action", actions, percentiles)
        metrics["rollout_batch/done_rate"] = jnp.mean(
            transitions.done, dtype=jnp.float32
        )
        metrics["rollout_batch/truncation_rate"] = jnp.mean(
            transitions.truncated, dtype=jnp.float32
        )
    if LoggingLevel.ROLLOUT_OBS in level:
        metrics |= summarize("rollout_batch/obs", transitions.obs, percentiles)
    if LoggingLevel.ACTOR_EXTRA in level:
        log_likelihoods = transitions.network_output.loglikelihoods
        metrics |= summarize("loglikelihood", log_likelihoods, percentiles)
    if LoggingLevel.CRITIC_EXTRA in level:
        values = transitions.network_output.value_estimates
        metrics |= summarize("losses/predicted_value", values, percentiles)
    if LoggingLevel.WEIGHTS in level:
        weights = [leaf.ravel() for leaf in jtu.tree_leaves(parameters)]
        if weights:
            metrics |= summarize("weights", jnp.concatenate(weights), percentiles)
    return metrics


def summarize(
    name: str, value: PyTree, percentiles: tuple[int, ...] | None = None
) -> dict[str, Array]:
    """The distribution of every array of a tree.

    **Arguments:**

    - `name`: of the value; entries of a tree are called `name/key`.
    - `value`: a tree of arrays of any shape.
    - `percentiles`: give `name/p50`, ...; without them, `name/mean` and `name/std`.

    **Returns:**

    Scalars. A boolean array gives the fraction that is True, as `name`.
    """
    metrics: dict[str, Array] = {}
    for path, leaf in jtu.tree_leaves_with_path({name: value}):
        place = jtu.keystr(path, simple=True, separator="/")
        numbers = leaf.astype(jnp.float32)
        if leaf.dtype == jnp.bool_:
            metrics[place] = jnp.mean(numbers)
        elif percentiles:
            levels = jnp.percentile(numbers, jnp.array(percentiles, jnp.float32))
            metrics |= {
                f"{place}/p{p}": x for p, x in zip(percentiles, levels, strict=True)
            }
        else:
            metrics |= {
                f"{place}/mean": jnp.mean(numbers),
                f"{place}/std": jnp.std(numbers),
            }
    return metrics


def _ended_episodes(
    episode: Mapping[str, Array], done: Bool[Array, "T B"]
) -> dict[str, Array]:
    """Means over the episodes that ended."""
    count = jnp.sum(done.astype(jnp.float32))
    metrics = {"episode/count": count}
    for name, value in episode.items():
        total = jnp.sum(jnp.where(done, value.astype(jnp.float32), 0))
        metrics[f"episode/{name}/mean"] = total / count
    return metrics
