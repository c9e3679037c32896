"""A graph of populations is the original's, step by step and in one go."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from nnx_ppo.networks import (
    containers,
    delay,
    feedforward,
    graph as original_graph,
    recurrent,
    variational,
)

from nnx_ppo_fn import (
    Delay,
    Dense,
    LSTM,
    PopulationGraphBuilder,
    Sequential,
    unroll,
    VariationalBottleneck,
)
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
LATE = jax.ShapeDtypeStruct((5,), jnp.float32)


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


def connection_names(theirs):
    """Ours for the connections of the original's, which go by position there."""
    names = []
    for one in theirs.connections:
        name = f"{one.src}->{one.dst}"
        names.append(f"{name} (2)" if name in names else name)
    return names


def with_weights(theirs, ours):
    """Ours with the weights of the original's."""
    names = connection_names(theirs)
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


def reporting(builder, *, memory, late, later, told, told_late):
    """A cycle through transforms that remember, and two that have a price."""
    builder.add_input("eye", 3, input_from="image", activation=jnp.tanh)
    builder.add_input("skin", 4, input_from="touch")
    builder.add_population("cortex", 5, activation=jnp.tanh)
    builder.add_output("arm", 2)
    builder.add_output("guess", 2)
    builder.connect("eye", "cortex", transform=memory)
    builder.connect("cortex", "cortex", delay=2, transform=late)
    builder.connect("cortex", "eye", delay=1, transform=later)
    builder.connect("cortex", "arm")
    builder.connect("skin", "guess", transform=told)
    builder.connect("skin", "guess", delay=3, transform=told_late)
    return builder


def test_transforms_remember_and_report_as_the_original_s():
    rngs = StillRngs(0)
    with as_released():
        theirs = reporting(
            original_graph.PopulationGraph(rngs),
            memory=recurrent.LSTM(3, 5, rngs),
            late=delay.Delay(LATE, 3),
            later=containers.Sequential(
                [
                    delay.Delay(LATE, 2),
                    recurrent.LSTM(5, 4, rngs),
                    feedforward.Dense(4, 3, rngs),
                ]
            ),
            told=variational.VariationalBottleneck(2, rngs, 0.5),
            told_late=variational.VariationalBottleneck(2, rngs, 2.0),
        )
        theirs.finalize()
        theirs = compiled(stirred(theirs))
        their_state = theirs.initialize_state(BATCH)
    ours = reporting(
        PopulationGraphBuilder(key=KEY),
        memory=LSTM(3, 5, key=KEY),
        late=Delay(LATE, 3),
        later=Sequential(
            [Delay(LATE, 2), LSTM(5, 4, key=KEY), Dense(4, 3, key=KEY)],
        ),
        told=VariationalBottleneck(2, 0.5),
        told_late=VariationalBottleneck(2, 2.0),
    )
    ours = with_weights(theirs, ours.finalize())
    our_state = ours.initialize_state(jr.split(KEY, BATCH))
    keys = jr.split(jr.key(1), 3)
    xs = {
        "image": jr.normal(keys[0], (LENGTH, BATCH, 3)),
        "touch": jr.normal(keys[1], (LENGTH, BATCH, 4)),
    }
    is_first = jr.bernoulli(keys[2], 0.15, (LENGTH, BATCH)).at[:, 0].set(False)

    expected = stepper(theirs)(their_state, xs, is_first)
    by_steps = our_steps(ours, our_state, xs, is_first)
    at_once = eqx.filter_jit(unroll)(ours, our_state, xs, is_first)

    # The original keeps no metrics of transforms: they are run once more by themselves.
    metrics = {}
    for name, transform, late in zip(
        ("skin->guess", "skin->guess (2)"), theirs.connections[-2:], (0, 3), strict=True
    ):
        with as_released():
            state = transform.transform.initialize_state(BATCH)
        touch = delayed(np.asarray(xs["touch"]), np.asarray(is_first), late)
        metrics[name] = stepper(transform.transform)(state, touch, is_first).metrics
    for found in (by_steps, at_once):
        assert_same_numbers(found.output["arm"], expected.output["arm"])
        # The original's is one number for all environments.
        total = jnp.sum(found.regularization_loss, axis=1)
        np.testing.assert_allclose(total, expected.regularization_loss[:, 0], rtol=1e-5)
        for name, there in metrics.items():
            here = found.metrics[name]
            assert_same_numbers(here["kl_divergence"], there["kl_divergence"])
            assert_same_numbers(here["mu"], jnp.mean(there["mu"], axis=-1))
            assert_same_numbers(here["sigma"], jnp.mean(there["sigma"], axis=-1))
        assert set(found.metrics) >= set(metrics)

    children = by_steps.next_state.children
    carries = dict(
        zip(connection_names(theirs), expected.next_state["connections"], strict=True)
    )
    last = at_once.next_state.children
    for name in ("eye->cortex", "cortex->cortex", "cortex->eye"):
        assert_same_numbers(in_their_order(children[name]), carries[name])
        final = jax.tree.map(lambda leaf: leaf[-1], children[name])
        assert_same_numbers(last[name], final)


def delayed(xs, is_first, steps):
    """What was there some steps ago, and 0 where no step of the episode was."""
    late = np.zeros_like(xs)
    for t in range(steps, len(xs)):
        same_episode = ~np.any(is_first[t - steps + 1 : t + 1], axis=0)
        late[t, same_episode] = xs[t - steps, same_episode]
    return late


def in_their_order(carry):
    """Carries as the original's leaves come: an LSTM's is `(c, h)` there."""
    if not isinstance(carry, tuple):
        return carry
    if len(carry) == 2:
        return carry[::-1]
    return [in_their_order(one) for one in carry]
