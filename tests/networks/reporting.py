"""A module that reports in every way there is, and a step of any module."""

from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr

from nnx_ppo_fn.networks.types import output, StatelessModule


class Report(StatelessModule[Any, Any]):
    """Adds a number; reports it as metric, regularisation and extras."""

    number: float

    def __call__(self, state, x, rollout_extras=None):
        reported = jnp.full(len(x), self.number, jnp.float32)
        return output(
            x + self.number,
            batch=len(x),
            regularization_loss=reported,
            metrics={"number": reported},
            rollout_extras=reported if rollout_extras is None else rollout_extras,
        )


def stepped(module, x, key=None, extras=None):
    key = jr.key(0) if key is None else key
    leaves = jax.tree.leaves(x)
    state = module.initialize_state(jr.split(key, len(leaves[0]) if leaves else 2))
    return module(state, x, extras)
