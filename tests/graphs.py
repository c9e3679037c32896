"""Graphs of populations that several tests share."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

from nnx_ppo_fn import (
    AR1VariationalBottleneck,
    BernoulliGate,
    Dense,
    GaussianNoise,
    LSTM,
    PopulationGraphBuilder,
    Sequential,
)


def twelve_populations(key, size=2):
    """Two cycles, delays from 0 to 5, noise, Dale's law, and modules with a memory."""
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


def random_graph(seed):
    """Up to six populations with random connections; two take one and the same entry.

    Connections without delay lead forward in a random order; others lead anywhere. Some
    of them draw, and some of them have a memory.
    """
    generator = np.random.default_rng(seed)
    names = [f"p{number}" for number in range(generator.integers(3, 7))]
    sizes = {name: int(generator.integers(1, 4)) for name in names}
    sizes[names[1]] = sizes[names[0]]
    builder = PopulationGraphBuilder(key=jr.key(seed))
    activations = [None, jnp.tanh, [GaussianNoise(0.3), jnp.tanh]]
    for number, name in enumerate(names):
        chosen = activations[generator.integers(3)]
        if number < 2:
            builder.add_input(name, sizes[name], input_from="x", activation=chosen)
        elif number == 2:
            builder.add_output(name, sizes[name], output_to="y", activation=chosen)
        else:
            builder.add_population(name, sizes[name], activation=chosen)
    builder.connect(names[0], names[2])
    order = generator.permutation(len(names))
    for number in range(generator.integers(4, 10)):
        src, dst = generator.integers(len(names), size=2)
        delay = int(generator.integers(5))
        if delay == 0 and (order[src] >= order[dst] or {src, dst} == {0, 2}):
            delay = 1
        has_memory = generator.random() < 0.2
        key = jr.fold_in(jr.key(seed), number)
        src, dst = names[src], names[dst]
        memory = LSTM(sizes[src], sizes[dst], key=key) if has_memory else None
        builder.connect(src, dst, delay=delay, transform=memory)
    return builder.finalize(), {"x": sizes[names[0]]}
