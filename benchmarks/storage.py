"""What a compiled PPO step keeps of every environment step."""

import math
import re
from typing import Any, NamedTuple

import jax.tree_util as jtu
import numpy as np


_LOOP = re.compile(r"= \((?P<buffers>.*?)\) while\(.*known_trip_count\D*(?P<trips>\d+)")
_BUFFER = re.compile(r"(?P<kind>[a-z]+)(?P<bits>\d*)\w*\[(?P<shape>[\d,]+)\]")


class Storage(NamedTuple):
    """Bytes per environment step.

    - `stored`: in the buffers that the compiled rollout writes.
    - `listed`: of what a replay cannot do without: the observation, the log-likelihood
      and the value, the reward, the flags, the bootstrap value, and the extras, among
      which the raw action stands for the action.
    """

    stored: int
    listed: int


def storage_of(compiled: Any, rollout: Any) -> Storage | None:
    """Reads the buffers in a compiled `ppo_step`.

    **Arguments:**

    - `compiled`: the step, as `jax.stages.Compiled`.
    - `rollout`: the shapes of its `Rollout`.

    **Returns:**

    `None` where the compiler writes its programs in another way.
    """
    length, batch = rollout.is_first.shape
    loops = [
        sum(_bytes_in(loop["buffers"], length, batch))
        for loop in _LOOP.finditer(compiled.as_text())
        if int(loop["trips"]) == length
    ]
    if not any(loops):
        return None
    return Storage(max(loops) // (length * batch), listed_bytes(rollout))


def listed_bytes(rollout: Any) -> int:
    """Bytes per environment step of what a replay cannot do without.

    Extras of an observation's shape are a normaliser's at the network's input: they are
    the observation itself.
    """
    kept = rollout.transitions
    observations = {leaf.shape for leaf in jtu.tree_leaves(kept.obs)}
    extras = [
        leaf
        for leaf in jtu.tree_leaves(kept.rollout_extras)
        if leaf.shape not in observations
    ]
    listed = (
        rollout.is_first,
        kept.obs,
        kept.network_output.loglikelihoods,
        kept.network_output.value_estimates,
        kept.rewards,
        kept.done,
        kept.truncated,
        kept.bootstrap_value,
        extras,
    )
    steps = rollout.is_first.size
    return sum(
        leaf.size * np.dtype(leaf.dtype).itemsize // steps
        for leaf in jtu.tree_leaves(listed)
    )


def _bytes_in(buffers: str, length: int, batch: int) -> list[int]:
    """Bytes of the buffers with axes `[T, B, ...]` among those of a loop."""
    found: list[int] = []
    for buffer in _BUFFER.finditer(buffers):
        shape = tuple(int(size) for size in buffer["shape"].split(","))
        if shape[:2] == (length, batch):
            bits = 8 if buffer["kind"] == "pred" else int(buffer["bits"])
            found.append(math.prod(shape) * bits // 8)
    return found
