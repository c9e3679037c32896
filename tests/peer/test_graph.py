"""A graph of populations is the original's, step by step and in one go."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from nnx_ppo.networks import graph as original_graph

from nnx_ppo_fn import PopulationGraphBuilder, unroll
from peer.original import (
    as_released,
    assert_same_numbers,
    compiled,
    KEY,
    our_steps,
    stepper,
    StillRngs,
    stirred,
    with_weights_of,
)


LENGTH, BATCH = 30, 4


def described(builder):
    """The same calls for both libraries."""
    builder.add_input("eye", 3, input_from="image", activation=jnp.tanh)
    builder.add_input("skin", 2, input_from="touch")
    builder.add_population("cortex", 5, activation=jnp.tanh)
    builder.add_population("thalamus", 4, activation=jax.nn.relu)
    builder.add_output("arm", 2)
    builder.add_output("leg", 3, output_to="foot", activation=jnp.tanh)
    builder.connect("eye", "cortex")
    builder.connect("eye", "cortex", delay=5)
    builder.connect("skin", "thalamus", delay=1, reciprocal=True)
    builder.connect("cortex", "thalamus", delay=2, reciprocal=True)
    builder.connect("cortex", "cortex", delay=4)
    builder.connect("thalamus", "arm")
    builder.connect("cortex", "leg", delay=3)
    builder.connect("arm", "leg", delay=1)
    return builder


def with_weights(theirs, ours):
    """Ours with the weights of the original's, whose connections have no names."""
    names, seen = [], set()
    for one in theirs.connections:
        name = f"{one.src}->{one.dst}"
        names.append(f"{name} (2)" if name in seen else name)
        seen.add(name)
    assert sorted(names) == list(ours.connections)
    return eqx.tree_at(
        lambda graph: [graph.connections[name].transform for name in names],
        ours,
        [
            with_weights_of(one.transform, ours.connections[name].transform)
            for name, one in zip(names, theirs.connections, strict=True)
        ],
    )


def test_thirty_steps_with_resets_give_the_same_numbers():
    with as_released():
        theirs = described(original_graph.PopulationGraph(StillRngs(0)))
        theirs.finalize()
        theirs = compiled(stirred(theirs))
        their_state = theirs.initialize_state(BATCH)
    ours = with_weights(theirs, described(PopulationGraphBuilder(key=KEY)).finalize())
    our_state = ours.initialize_state(jr.split(KEY, BATCH))
    keys = jr.split(jr.key(1), 3)
    xs = {
        "image": jr.normal(keys[0], (LENGTH, BATCH, 3)),
        "touch": jr.normal(keys[1], (LENGTH, BATCH, 2)),
    }
    is_first = jr.bernoulli(keys[2], 0.15, (LENGTH, BATCH)).at[:, 0].set(False)
    assert np.sum(is_first) >= 5

    expected = stepper(theirs)(their_state, xs, is_first)
    by_steps = our_steps(ours, our_state, xs, is_first)
    at_once = eqx.filter_jit(unroll)(ours, our_state, xs, is_first)

    for name in ("arm", "foot"):
        for found in (by_steps, at_once):
            assert_same_numbers(found.output[name], expected.output[name])
    # Every slot of every delay line, after every step.
    delays = by_steps.next_state.delays
    theirs_delayed = {
        name: state
        for name, state in expected.next_state["populations"].items()
        if state
    }
    assert list(delays) == sorted(theirs_delayed)
    for name, buffer in delays.items():
        assert_same_numbers(
            (buffer.buffer, buffer.index),
            (theirs_delayed[name]["buffer"], theirs_delayed[name]["buffer_idx"]),
        )
        last = at_once.next_state.delays[name]
        assert_same_numbers(last.buffer, buffer.buffer[-1])
        np.testing.assert_array_equal(last.index, buffer.index[-1])
