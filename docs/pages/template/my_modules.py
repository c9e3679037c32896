"""Modules of one's own: a layer that draws, a memory, a container, and a network."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Key

from nnx_ppo_fn import (
    CategoricalSampler,
    Container,
    Dense,
    Normalizer,
    normals,
    output,
    PPOAdapter,
    RecurrentModule,
    Sequential,
    StatefulModule,
    StatefulModuleOutput,
    StochasticModule,
)


Features = Float[Array, "B features"]
Hidden = Float[Array, "B hidden"]


class SynapticNoise(StochasticModule[Features, Features]):
    """Multiplies every signal by a random factor around 1."""

    strength: float = 0.2
    inference: bool = False

    def apply(
        self, draw: Key[Array, " B"], x: Features, rollout_extras: Any = None
    ) -> StatefulModuleOutput[Any, Features]:
        """The noisy signals; as they are where `inference` is set."""
        noise = 0.0 if self.inference else self.strength * normals(draw, x.shape[-1])
        return output(x * (1 + noise), batch=len(x))


class Leaky(RecurrentModule[Hidden]):
    """Integrators that forget, each at a pace of its own, which is learned."""

    encoder: Dense
    pace: Float[Array, " hidden"]
    in_features: int = eqx.field(static=True)
    hidden_features: int = eqx.field(static=True)

    def __init__(self, in_features: int, hidden_features: int, *, key: Key[Array, ""]):
        self.encoder = Dense(in_features, hidden_features, key=key)
        self.pace = jnp.linspace(-2.0, 2.0, hidden_features)
        self.in_features = in_features
        self.hidden_features = hidden_features

    def fresh_state(self, batch: int) -> Hidden:
        """Where an episode begins."""
        return jnp.zeros((batch, self.hidden_features))

    def project(self, x: Features) -> Float[Array, "B {self.hidden_features}"]:
        """What the input alone determines."""
        return self.encoder((), x).output

    def recur(self, state: Hidden, projected: Hidden) -> tuple[Hidden, Hidden]:
        """One step of the memory."""
        kept = jax.nn.sigmoid(self.pace)[None]
        next_state = kept * state + (1 - kept) * projected
        return next_state, jnp.tanh(next_state)


class Residual(Container[Features, Features]):
    """Adds its input to what a module makes of it."""

    inner: StatefulModule[Any, Features, Features]

    def children(self) -> dict[str, StatefulModule[Any, Any, Any]]:
        """The module inside."""
        return {"inner": self.inner}

    def route(self, call: Any, x: Float[Array, "..."]) -> Float[Array, "..."]:
        """Axes are counted from the end: time may stand before the batch."""
        return x + call("inner", x)


def make_network(
    observation_size: int, action_size: int, *, key: Key[Array, ""]
) -> Sequential[Any, Any]:
    """A network for discrete actions, from these modules."""
    encoder, memory, inner, policy, value = jr.split(key, 5)
    return Sequential(
        (
            Normalizer(observation_size),
            Dense(observation_size, 16, key=encoder),
            Leaky(16, 16, key=memory),
            Residual(Sequential((Leaky(16, 16, key=inner), SynapticNoise()))),
            PPOAdapter(
                action=Sequential(
                    (Dense(16, action_size, key=policy), CategoricalSampler(0.01))
                ),
                value=Dense(16, 1, key=value),
            ),
        )
    )
