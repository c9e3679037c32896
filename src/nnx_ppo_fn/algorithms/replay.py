"""Recomputes a rollout's activations under the network's present weights."""

from typing import Any

from ..networks.types import AnyModule, PPONetworkOutput, StatefulModuleOutput
from ..networks.unroll import unroll
from .types import Rollout


def replay(
    network: AnyModule, rollout: Rollout
) -> StatefulModuleOutput[Any, PPONetworkOutput]:
    """Runs the network over a rollout once more, layer by layer.

    With unchanged weights this gives the recorded outputs; with new ones, the same
    noise and the recorded actions under the new weights.

    **Arguments:**

    - `network`: of the structure that the rollout was recorded with.
    - `rollout`: a whole one, or a minibatch of environments.

    **Returns:**

    Outputs with leaves `[T, B, ...]`, and the carry after the last step.
    """
    return unroll(
        network,
        rollout.initial_carry,
        rollout.transitions.obs,
        rollout.is_first,
        rollout.transitions.rollout_extras,
    )
