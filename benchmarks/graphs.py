"""Graphs of populations, in sizes of one's choice."""

from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Key

from nnx_ppo_fn import (
    AR1VariationalBottleneck,
    BernoulliGate,
    Dense,
    GaussianNoise,
    LSTM,
    PopulationGraphBuilder,
    Sequential,
)


def describe_five(builder: Any, *, senses: int, size: int, action_size: int) -> Any:
    """Five populations, nine connections, delays from 0 to 3.

    **Arguments:**

    - `builder`: of this library or of nnx-ppo, whose methods have the same names.
    - `senses`: numbers in the observation.
    - `size`: of the two populations inside.
    - `action_size`: components of an action; the population that decides has a mean
      and a deviation for each.

    **Returns:**

    The builder.
    """
    builder.add_input("senses", senses, input_from="senses")
    builder.add_population("sensory", size, activation=jnp.tanh)
    builder.add_population("association", size, activation=jnp.tanh)
    builder.add_output("motor", 2 * action_size)
    builder.add_output("value", 1)
    builder.connect("senses", "sensory")
    builder.connect("senses", "association", delay=2)
    builder.connect("sensory", "sensory", delay=1)
    builder.connect("sensory", "association", delay=1)
    builder.connect("association", "sensory", delay=3)
    builder.connect("sensory", "motor")
    builder.connect("association", "motor", delay=1)
    builder.connect("sensory", "value")
    builder.connect("association", "value")
    return builder


def twelve_populations(key: Key[Array, ""], size: int = 2) -> Any:
    """Two cycles, delays from 0 to 5, noise, Dale's law, and modules with a memory.

    **Arguments:**

    - `key`: for the initial weights.
    - `size`: of all populations but the value.

    **Returns:**

    A graph of the entries `"image"` and `"touch"`, both of that size, with the outputs
    `"arm"` and `"value"`.
    """
    keys = jr.split(key, 4)
    mask = jr.bernoulli(keys[0], 0.5, (size, size))
    bottleneck = Sequential(
        [Dense(size, 2 * size, key=keys[1]), AR1VariationalBottleneck(size)]
    )
    builder = PopulationGraphBuilder(key=keys[2])
    for name, entry in (("eye", "image"), ("skin", "touch")):
        builder.add_input(name, size, input_from=entry, activation=jnp.tanh)
    for name in ("thalamus", "V1", "V2", "S1", "cerebellum"):
        builder.add_population(name, size, activation=jnp.tanh)
    return (
        builder.add_population("PFC", size, activation=[jnp.tanh, GaussianNoise(0.1)])
        .add_population("BG", size, activation=jax.nn.relu, sign=-1)
        .add_population("M1", size, activation=[jnp.tanh, BernoulliGate(size)])
        .add_output("arm", size)
        .add_output("value", 1)
        .connect("eye", "thalamus")
        .connect("thalamus", "V1", delay=1, reciprocal=True)
        .connect("V1", "V2")
        .connect("V2", "V1", delay=2)
        .connect("V2", "PFC", delay=1, transform=bottleneck)
        .connect("PFC", "BG", delay=3)
        .connect("BG", "thalamus", delay=4)
        .connect("skin", "S1", mask=mask)
        .connect("S1", "PFC", delay=2)
        .connect("S1", "M1", delay=1)
        .connect("PFC", "M1", transform=LSTM(size, size, key=keys[3]))
        .connect("M1", "cerebellum", delay=2, reciprocal=True)
        .connect("cerebellum", "arm", delay=5)
        .connect("M1", "arm")
        .connect("PFC", "value")
        .finalize()
    )
