"""What samplers have put into an output."""

from typing import Any

import jax.tree_util as jtu

from ..networks.types import PPONetworkOutput, SampledAction


def sampled(output: Any) -> list[dict[str, Any]]:
    """Actions and log-likelihoods of every sampler in an output."""
    found: list[dict[str, Any]] = []
    for node in jtu.tree_leaves(output, is_leaf=is_sampled):
        if isinstance(node, SampledAction):
            found.append({"action": node.action, "log": node.log_likelihood})
        elif isinstance(node, PPONetworkOutput):
            found.append({"action": node.actions, "log": node.loglikelihoods})
    return found


def likelihoods(samples: list[dict[str, Any]]) -> dict[str, Any]:
    """The log-likelihoods among what `sampled` has found, by their path."""
    logs = [{"log_likelihood": one["log"]} for one in samples]
    return {jtu.keystr(path): leaf for path, leaf in jtu.tree_leaves_with_path(logs)}


def without_samples(output: Any) -> Any:
    """The output without what a sampler decides."""

    def keep(node: Any) -> Any:
        if isinstance(node, PPONetworkOutput):
            return node.value_estimates
        return None if isinstance(node, SampledAction) else node

    return jtu.tree_map(keep, output, is_leaf=is_sampled)


def is_sampled(node: Any) -> bool:
    """Whether a node of an output tree is what a sampler returns."""
    return isinstance(node, SampledAction | PPONetworkOutput)
