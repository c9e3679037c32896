"""Modules that break the laws, each in a way that a user might.

All of them are layers `[B, n] -> [B, n]`, or samplers `[B, 2n] -> SampledAction`, so
they fit into a network and train, without an error and to no good.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr

from nnx_ppo_fn._keys import advance_keys, derive, normals
from nnx_ppo_fn.networks._trainable import NonTrainable
from nnx_ppo_fn.networks.sampling_layers import tanh_normal_log_density
from nnx_ppo_fn.networks.types import (
    output,
    SampledAction,
    StatefulModule,
    StatelessModule,
    StochasticModule,
)


# Keys.


class KeyHeldByModule(StatelessModule[Any, Any]):
    """Noise from a key in the module: the same in every step and every minibatch."""

    key: jax.Array

    def __call__(self, state, x, rollout_extras=None):
        noise = jr.normal(self.key, x.shape)
        return output(x + 0.3 * noise, batch=len(x))


class OneKeyForTheBatch(StochasticModule[Any, Any]):
    """Every environment starts its chain at the first one's key."""

    def initialize_state(self, keys):
        return jnp.broadcast_to(keys[:1], keys.shape)

    def apply(self, draw, x, rollout_extras=None):
        return output(x + 0.3 * normals(draw, x.shape[-1]), batch=len(x))


class DrawShapedByTheBatch(StochasticModule[Any, Any]):
    """One draw for all rows, so a row's noise depends on where in the batch it is."""

    def apply(self, draw, x, rollout_extras=None):
        return output(x + 0.3 * jr.normal(draw[0], x.shape), batch=len(x))


class KeyNotAdvanced(StochasticModule[Any, Any]):
    """Derives a key to draw from, but never moves the chain on."""

    def advance(self, state):
        return state, derive(state, "draw")

    def apply(self, draw, x, rollout_extras=None):
        return output(x + 0.3 * normals(draw, x.shape[-1]), batch=len(x))


class KeyConsumedTwice(StochasticModule[Any, Any]):
    """Draws a mask and then noise from one key."""

    def apply(self, draw, x, rollout_extras=None):
        size = x.shape[-1]
        keep = jax.vmap(lambda key: jr.bernoulli(key, 0.8, (size,)))(draw)
        noise = 0.3 * normals(draw, size)
        return output(jnp.where(keep, x, 0.0) + noise, batch=len(x))


class KeyNotAdvancedInReplay(StatefulModule[Any, Any, Any]):
    """A sampler that thinks it needs no key once the action is known."""

    def initialize_state(self, keys):
        return keys

    def reset_state(self, state):
        return state

    def __call__(self, state, x, rollout_extras=None):
        mean, std = _mean_and_std(x)
        next_state, raw = state, rollout_extras
        if rollout_extras is None:
            next_state, draw = advance_keys(state)
            raw = jax.lax.stop_gradient(mean + std * normals(draw, mean.shape[-1]))
        return output(
            SampledAction(jnp.tanh(raw), tanh_normal_log_density(raw, mean, std)),
            batch=len(x),
            next_state=next_state,
            rollout_extras=raw,
        )


# The batch, and the carry.


class BatchStatistics(StatelessModule[Any, Any]):
    """Batch normalisation: every row depends on all the others."""

    def __call__(self, state, x, rollout_extras=None):
        centred = x - jnp.mean(x, axis=0, keepdims=True)
        scaled = centred / (jnp.std(x, axis=0, keepdims=True) + 1e-3)
        return output(scaled, batch=len(x))


class StatisticsInTheForwardPass(StatefulModule[Any, Any, Any]):
    """A running mean of the batch, smuggled through the carry."""

    size: int = eqx.field(static=True)

    def initialize_state(self, keys):
        return jnp.zeros((len(keys), self.size))

    def reset_state(self, state):
        return jnp.zeros_like(state)

    def __call__(self, state, x, rollout_extras=None):
        mean = 0.9 * state + 0.1 * jnp.mean(x, axis=0, keepdims=True)
        return output(x - mean, batch=len(x), next_state=mean)


class Box:
    """Something mutable that JAX does not look into."""

    def __init__(self, value):
        self.value = value


class StatisticsInABox(StatelessModule[Any, Any]):
    """A running mean that the forward pass writes into a Python object."""

    mean: Box = eqx.field(static=True)

    def __call__(self, state, x, rollout_extras=None):
        self.mean.value = 0.9 * self.mean.value + 0.1 * jnp.mean(x, axis=0)
        return output(x - self.mean.value[None], batch=len(x))


class ResetByMultiplication(StatefulModule[Any, Any, Any]):
    """A leaky integrator whose reset is a product: NaN survives it."""

    size: int = eqx.field(static=True)

    def initialize_state(self, keys):
        return jnp.zeros((len(keys), self.size))

    def reset_state(self, state):
        return 0.0 * state

    def __call__(self, state, x, rollout_extras=None):
        trace = 0.8 * state + 0.2 * x
        return output(trace, batch=len(x), next_state=trace)


class CounterNeverReset(StatefulModule[Any, Any, Any]):
    """A running average whose sum is reset, and whose counter is forgotten."""

    size: int = eqx.field(static=True)

    def initialize_state(self, keys):
        total = jnp.zeros((len(keys), self.size))
        return {"total": total, "count": jnp.zeros(len(keys), jnp.int32)}

    def reset_state(self, state):
        return {"total": jnp.zeros_like(state["total"]), "count": state["count"]}

    def __call__(self, state, x, rollout_extras=None):
        total, count = state["total"] + x, state["count"] + 1
        average = total / count[:, None].astype(x.dtype)
        return output(
            average, batch=len(x), next_state={"total": total, "count": count}
        )


class StateOfAnotherEnvironment(StatefulModule[Any, Any, Any]):
    """Two stacked integrators, unpacked by a reshape that mixes the environments."""

    size: int = eqx.field(static=True)

    def initialize_state(self, keys):
        return jnp.zeros((len(keys), 2, self.size))

    def reset_state(self, state):
        return jnp.zeros_like(state)

    def __call__(self, state, x, rollout_extras=None):
        first, second = state.reshape(2, len(x), self.size)
        first = 0.5 * first + x
        second = 0.5 * second + first
        next_state = jnp.stack([first, second], axis=1)
        return output(second, batch=len(x), next_state=next_state)


# Extras.


class SamplerIgnoresExtras(StochasticModule[Any, Any]):
    """Samples anew in the replay: another action than the one that was taken."""

    def apply(self, draw, x, rollout_extras=None):
        mean, std = _mean_and_std(x)
        raw = jax.lax.stop_gradient(mean + std * normals(draw, mean.shape[-1]))
        return output(
            SampledAction(jnp.tanh(raw), tanh_normal_log_density(raw, mean, std)),
            batch=len(x),
            rollout_extras=raw,
        )


class SamplerRecordsLikelihood(StochasticModule[Any, Any]):
    """Gives back the rollout's log-likelihood: the ratio is 1, whatever is learned."""

    def apply(self, draw, x, rollout_extras=None):
        mean, std = _mean_and_std(x)
        sample = mean + std * normals(draw, mean.shape[-1])
        if rollout_extras is None:
            raw = jax.lax.stop_gradient(sample)
            rollout_extras = (raw, tanh_normal_log_density(raw, mean, std))
        raw, log_likelihood = rollout_extras
        return output(
            SampledAction(jnp.tanh(raw), log_likelihood),
            batch=len(x),
            rollout_extras=rollout_extras,
        )


class LayerRecordsOutput(StochasticModule[Any, Any]):
    """A noisy layer that replays what it returned, which has no gradient."""

    def apply(self, draw, x, rollout_extras=None):
        noisy = x + 0.3 * normals(draw, x.shape[-1])
        y = noisy if rollout_extras is None else rollout_extras
        return output(y, batch=len(x), rollout_extras=y)


class UpdateDoesNothing(StatelessModule[Any, Any]):
    """Records its inputs for statistics that nobody updates."""

    mean: NonTrainable[jax.Array]

    def __call__(self, state, x, rollout_extras=None):
        extras = x if rollout_extras is None else rollout_extras
        return output(x - self.mean.value[None], batch=len(x), rollout_extras=extras)


def _mean_and_std(x):
    mean, raw = jnp.split(x, 2, axis=-1)
    return mean, jax.nn.softplus(raw) + 1e-2


@dataclasses.dataclass(frozen=True)
class Wrong:
    """A wrong module, and the law that must catch it.

    - `build`: makes the module for `n` features (`2n` for a sampler).
    - `law`: which law it breaks.
    - `advice`: words that the message must hold.
    - `sampler`: whether its input is `[B, 2n]` and its output a `SampledAction`.
    """

    name: str
    build: Callable[[int], StatefulModule[Any, Any, Any]]
    law: str
    advice: str
    sampler: bool = False


WRONG = (
    Wrong(
        "a key held by the module",
        lambda n: KeyHeldByModule(jr.key(1)),
        "provenance",
        "Keys live in the carry",
    ),
    Wrong(
        "one key for the batch",
        lambda n: OneKeyForTheBatch(),
        "provenance",
        "one key serves two purposes or two environments",
    ),
    Wrong(
        "a draw shaped by the batch",
        lambda n: DrawShapedByTheBatch(),
        "slicing",
        "draw with one key per row",
    ),
    Wrong(
        "a key not advanced",
        lambda n: KeyNotAdvanced(),
        "provenance",
        "next_state, draw = advance_keys(state)",
    ),
    Wrong(
        "a key consumed twice",
        lambda n: KeyConsumedTwice(),
        "provenance",
        "Take a new key for every draw",
    ),
    Wrong(
        "a key not advanced in replay only",
        lambda n: KeyNotAdvancedInReplay(),
        "replay",
        "must evolve in the replay as it did in the rollout",
        sampler=True,
    ),
    Wrong(
        "batch statistics in the forward pass",
        lambda n: BatchStatistics(),
        "slicing",
        "a mean over the batch axis",
    ),
    Wrong(
        "statistics written in the forward pass",
        StatisticsInTheForwardPass,
        "slicing",
        "a mean over the batch axis",
    ),
    Wrong(
        "statistics written into a Python object",
        lambda n: StatisticsInABox(Box(0.0)),
        "carry",
        "Modules are pure",
    ),
    Wrong(
        "reset by multiplication",
        ResetByMultiplication,
        "reset",
        "`state * 0`, which keeps NaN",
    ),
    Wrong(
        "an integer counter never reset",
        CounterNeverReset,
        "reset",
        "a counter that is never reset",
    ),
    Wrong(
        "state of another environment after a reshape",
        StateOfAnotherEnvironment,
        "slicing",
        "a reshape that mixes environments",
    ),
    Wrong(
        "a sampler that ignores its extras",
        lambda n: SamplerIgnoresExtras(),
        "re-weighting",
        "raw = sample if rollout_extras is None else rollout_extras",
        sampler=True,
    ),
    Wrong(
        "a sampler that records its log-likelihood and returns it",
        lambda n: SamplerRecordsLikelihood(),
        "re-weighting",
        "Record the raw action",
        sampler=True,
    ),
    Wrong(
        "a layer that records its output and returns it",
        lambda n: LayerRecordsOutput(),
        "re-weighting",
        "Compute the output from the input",
    ),
    Wrong(
        "an update_statistics that does nothing",
        lambda n: UpdateDoesNothing(NonTrainable(jnp.zeros(n))),
        "statistics",
        "update_statistics is missing or returns self",
    ),
)
"""Every wrong module."""
