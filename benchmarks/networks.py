"""The networks that are measured, by name."""

from collections.abc import Callable, Mapping
from typing import Literal

import jax
import jax.random as jr
from jaxtyping import Array, Key

from nnx_ppo_fn import (
    Concat,
    Dense,
    derive,
    Dropout,
    Filter,
    GaussianNoise,
    make_mlp_actor_critic,
    make_recurrent_actor_critic,
    make_variational_actor_critic,
    Normalizer,
    NormalTanhSampler,
    PopulationGraphBuilder,
    PPOAdapter,
    Scale,
    Sequential,
    Splitter,
)
from nnx_ppo_fn.networks.types import AnyModule

from .graphs import describe_five, twelve_populations
from .ring import ACTION_SIZE, OBSERVATION_SIZE


TOWERS = (256, 256)
"""Hidden layers of the MLP's actor, and of its critic."""

MEMORY = 128
"""Size of a recurrent layer, and of the populations inside the smaller graph."""

HEADS = (64,)
"""Hidden layers of the two heads behind a memory."""

LATENTS = 32
"""Size of the variational network's bottleneck."""

AROUND_LATENTS = (256,)
"""Hidden layers of its encoder, and of the two heads that decode."""

POPULATION = 32
"""Size of the twelve populations."""

ENTROPY_WEIGHT = 1e-2

MIN_STD = 0.1
"""The least standard deviation of an action, before it is squashed."""


def mlp(key: Key[Array, ""]) -> AnyModule:
    """Two towers without a memory."""
    return make_mlp_actor_critic(
        OBSERVATION_SIZE,
        ACTION_SIZE,
        TOWERS,
        TOWERS,
        key=key,
        entropy_weight=ENTROPY_WEIGHT,
        min_std=MIN_STD,
    )


def lstm(key: Key[Array, ""]) -> AnyModule:
    """An LSTM with two heads."""
    return _recurrent("lstm", key)


def gru(key: Key[Array, ""]) -> AnyModule:
    """A GRU with two heads."""
    return _recurrent("gru", key)


def lru(key: Key[Array, ""]) -> AnyModule:
    """A linear recurrent unit with two heads."""
    return _recurrent("lru", key)


def min_gru(key: Key[Array, ""]) -> AnyModule:
    """A minimal GRU with two heads."""
    return _recurrent("min_gru", key)


def attention(key: Key[Array, ""]) -> AnyModule:
    """Attention over the last steps, with two heads of a policy."""
    return _recurrent("attention", key)


def variational(key: Key[Array, ""]) -> AnyModule:
    """An encoder, a variational bottleneck, and two heads that decode."""
    return make_variational_actor_critic(
        OBSERVATION_SIZE,
        ACTION_SIZE,
        key=key,
        latent_size=LATENTS,
        encoder_sizes=AROUND_LATENTS,
        head_sizes=AROUND_LATENTS,
        activation="relu",
        entropy_weight=ENTROPY_WEIGHT,
    )


def noisy(key: Key[Array, ""]) -> AnyModule:
    """The MLP with noise on its neurons, and with dropout for whole episodes."""
    actor = _noisy_tower(2 * ACTION_SIZE, derive(key, "actor"))
    critic = _noisy_tower(1, derive(key, "critic"))
    sampler = NormalTanhSampler(ENTROPY_WEIGHT, min_std=MIN_STD)
    return Sequential(
        [
            Normalizer(OBSERVATION_SIZE),
            GaussianNoise(0.1),
            PPOAdapter(action=Sequential([*actor, sampler]), value=Sequential(critic)),
        ]
    )


def graph(key: Key[Array, ""]) -> AnyModule:
    """Five populations, one of the cycles among them with a delay of one step."""
    builder = PopulationGraphBuilder(key=key)
    describe_five(
        builder, senses=OBSERVATION_SIZE, size=MEMORY, action_size=ACTION_SIZE
    )
    return Sequential(
        [
            Normalizer(OBSERVATION_SIZE),
            Splitter(senses=OBSERVATION_SIZE),
            builder.finalize(),
            PPOAdapter(
                action=Sequential(
                    [
                        *_entry("motor"),
                        NormalTanhSampler(ENTROPY_WEIGHT, min_std=MIN_STD),
                    ]
                ),
                value=Sequential(_entry("value")),
            ),
        ]
    )


def large_graph(key: Key[Array, ""]) -> AnyModule:
    """Twelve populations, with memory and noise on some of their connections."""
    keys = jr.split(key)
    half = OBSERVATION_SIZE // 2
    return Sequential(
        [
            Normalizer(OBSERVATION_SIZE),
            Splitter(image=half, touch=half),
            twelve_populations(keys[0], POPULATION),
            PPOAdapter(
                action=Sequential(
                    [
                        *_entry("arm"),
                        Dense(POPULATION, 2 * ACTION_SIZE, key=keys[1]),
                        NormalTanhSampler(ENTROPY_WEIGHT, min_std=MIN_STD),
                    ]
                ),
                value=Sequential(_entry("value")),
            ),
        ]
    )


def _entry(name: str) -> list[AnyModule]:
    """One of a graph's outputs, out of all of them."""
    return [Filter({name: name}), Concat({name: Scale(1.0)})]


def _recurrent(
    cell: Literal["lstm", "gru", "lru", "min_gru", "attention"],
    key: Key[Array, ""],
) -> AnyModule:
    return make_recurrent_actor_critic(
        OBSERVATION_SIZE,
        ACTION_SIZE,
        key=key,
        cell=cell,
        hidden_features=MEMORY,
        head_sizes=HEADS,
        activation="relu",
        entropy_weight=ENTROPY_WEIGHT,
    )


def _noisy_tower(out_features: int, key: Key[Array, ""]) -> list[AnyModule]:
    sizes = (OBSERVATION_SIZE, *TOWERS)
    layers: list[AnyModule] = []
    for index, (before, after) in enumerate(zip(sizes[:-1], sizes[1:], strict=True)):
        dense = Dense(
            before, after, key=derive(key, f"layer {index}"), activation=jax.nn.relu
        )
        layers += [dense, GaussianNoise(0.1), Dropout(0.1, hold="episode")]
    return [*layers, Dense(sizes[-1], out_features, key=derive(key, "last layer"))]


NETWORKS: Mapping[str, Callable[[Key[Array, ""]], AnyModule]] = {
    "mlp": mlp,
    "lstm": lstm,
    "gru": gru,
    "lru": lru,
    "min_gru": min_gru,
    "attention": attention,
    "variational": variational,
    "noisy": noisy,
    "graph": graph,
    "large_graph": large_graph,
}
"""Each makes a network from a key."""
