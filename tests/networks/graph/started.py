"""The small graph that tests of the builder start from."""

import jax.numpy as jnp
import jax.random as jr

from nnx_ppo_fn import PopulationGraphBuilder


KEY = jr.key(0)


def builder():
    """An input of 3, a population of 4 and an output of 2, not connected yet."""
    return (
        PopulationGraphBuilder(key=KEY)
        .add_input("eye", 3, input_from="image")
        .add_population("cortex", 4, activation=jnp.tanh)
        .add_output("arm", 2)
    )


def connected():
    """The same, connected one after the other."""
    return builder().connect("eye", "cortex").connect("cortex", "arm")
