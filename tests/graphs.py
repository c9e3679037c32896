"""Graphs of populations that several tests share."""

import jax.numpy as jnp
import jax.random as jr
import numpy as np

from benchmarks.graphs import twelve_populations as twelve_populations
from nnx_ppo_fn import GaussianNoise, LSTM, PopulationGraphBuilder


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
