import dataclasses
import re

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from graphs import twelve_populations
from helpers import assert_close, small_network, tree_equal
from nnx_ppo_fn import (
    CategoricalSampler,
    CompositionError,
    Dense,
    extract_activations,
    LSTM,
    Normalizer,
    output,
    PopulationGraphBuilder,
    PPOAdapter,
    Recorder,
    Sequential,
    Stateless,
    StatelessModule,
    summary,
    unroll,
    with_recording,
)
from nnx_ppo_fn.networks._wrapping import matching
from nnx_ppo_fn.networks.types import ACTIVATION_KEY


def layers(key):
    first, second = jr.split(key)
    return Sequential(
        [Dense(3, 4, key=first, activation=jnp.tanh), Dense(4, 2, key=second)]
    )


def policy(key):
    keys = jr.split(key, 3)
    return Sequential(
        [
            LSTM(3, 4, key=keys[0]),
            PPOAdapter(
                Sequential([Dense(4, 2, key=keys[1]), CategoricalSampler(0.01)]),
                Dense(4, 1, key=keys[2]),
            ),
        ]
    )


def entries(batch, *time):
    keys = jr.split(jr.key(7))
    return {
        name: jr.normal(key, (*time, batch, 2))
        for name, key in zip(("image", "touch"), keys, strict=True)
    }


IS_FIRST = jnp.array([[1, 1], [0, 0], [0, 1], [0, 0], [1, 0]], jnp.bool_)


def graph_and_inputs():
    return twelve_populations(jr.key(0)), entries(2, len(IS_FIRST))


def network_and_inputs():
    return small_network(jr.key(0), 3), jr.normal(jr.key(1), (len(IS_FIRST), 2, 3))


@pytest.mark.parametrize("make", [graph_and_inputs, network_and_inputs])
@pytest.mark.parametrize("select", [None, "*"])
def test_recording_changes_no_bit(make, select):
    network, xs = make()
    recorded = with_recording(network, select)
    keys = jr.split(jr.key(2))
    state = network.initialize_state(keys)
    assert tree_equal(recorded.initialize_state(keys), state)
    assert tree_equal(recorded.reset_state(state), network.reset_state(state))
    run = eqx.filter_jit(unroll)
    plain, looked_at = (run(one, state, xs, IS_FIRST) for one in (network, recorded))
    without = [dataclasses.replace(one, metrics={}) for one in (plain, looked_at)]
    assert tree_equal(*without)


def test_activations_are_the_outputs_of_the_layers():
    network = layers(jr.key(0))
    x = jr.normal(jr.key(1), (5, 3))
    recorded = with_recording(network, "*")
    state = recorded.initialize_state(jr.split(jr.key(2), 5))
    found = extract_activations(recorded(state, x).metrics)
    first, second = (np.asarray(layer.kernel, np.float64) for layer in network.layers)
    hidden = np.tanh(np.asarray(x, np.float64) @ first)
    assert found.keys() == {"", "[0]", "[1]"}
    np.testing.assert_allclose(found["[0]"], hidden, atol=1e-6)
    np.testing.assert_allclose(found["[1]"], hidden @ second, atol=1e-6)
    np.testing.assert_array_equal(found[""], found["[1]"])


def test_populations_are_recorded_like_any_other_module():
    """A delayed loop, written out in NumPy."""
    graph = (
        PopulationGraphBuilder(key=jr.key(0))
        .add_input("S1", 2, input_from="x", activation=jnp.tanh)
        .add_output("M1", 3, activation=jnp.tanh)
        .connect("S1", "M1", delay=1)
        .connect("M1", "M1", delay=2)
        .finalize()
    )
    xs = jr.normal(jr.key(1), (6, 2, 2))
    recorded = with_recording(graph)
    state = recorded.initialize_state(jr.split(jr.key(2)))
    run = eqx.filter_jit(unroll)
    result = run(recorded, state, {"x": xs}, jnp.zeros((6, 2), jnp.bool_))
    found = extract_activations(result.metrics)
    forward, loop = (
        np.asarray(graph.connections[name].transform.kernel, np.float64)
        for name in ("S1->M1", "M1->M1")
    )
    senses = np.tanh(np.asarray(xs, np.float64))
    motor = np.zeros((6, 2, 3))
    for t in range(6):
        drive = senses[t - 1] @ forward if t >= 1 else 0
        motor[t] = np.tanh(drive + (motor[t - 2] @ loop if t >= 2 else 0))
    np.testing.assert_allclose(found[".S1"], senses, atol=1e-6)
    np.testing.assert_allclose(found[".M1"], motor, atol=1e-6)
    np.testing.assert_allclose(found[".M1->M1"][2:], motor[:-2] @ loop, atol=1e-6)


@pytest.mark.parametrize(
    "network, x",
    [
        (policy(jr.key(0)), jnp.ones((2, 3))),
        (twelve_populations(jr.key(0)), entries(2)),
    ],
)
def test_paths_are_those_of_the_summary(network, x):
    recorded = with_recording(network, "*")
    result = recorded(recorded.initialize_state(jr.split(jr.key(1))), x)
    rows = summary(network).rows
    assert extract_activations(result.metrics).keys() == {row.place for row in rows}


@pytest.mark.parametrize(
    "select, expected",
    [
        (None, {"[0]", "[1].action[0]", "[1].action[1]", "[1].value"}),
        ("[0]", {"[0]"}),
        ("[1].action*", {"[1].action", "[1].action[0]", "[1].action[1]"}),
        ("*[0]", {"[0]", "[1].action[0]"}),
        (["", "[1].value"], {"", "[1].value"}),
    ],
)
def test_patterns_select(select, expected):
    recorded = with_recording(policy(jr.key(0)), select)
    result = recorded(recorded.initialize_state(jr.split(jr.key(1))), jnp.ones((2, 3)))
    found = extract_activations(result.metrics)
    assert found.keys() == expected


@pytest.mark.parametrize("select", ["[1].acton", "[01]", ["[0]", "[1].acton"], "[2]*"])
def test_a_pattern_without_a_module_is_refused(select):
    wrong = select if isinstance(select, str) else select[1]
    with pytest.raises(ValueError, match=re.escape(f"no module stands at {wrong!r}")):
        with_recording(policy(jr.key(0)), select)


def test_the_nearest_path_is_named():
    expected = r"did you mean '\[1\].action'\?\); paths are '', '\[0\]', '\[1\]'"
    with pytest.raises(ValueError, match=expected):
        with_recording(policy(jr.key(0)), "[1].acton")


def test_what_is_no_path_is_refused():
    with pytest.raises(TypeError, match=r"path of a module.*got 0"):
        matching(0, ["[0]"])


def test_a_second_call_records_more_and_nothing_twice():
    network = policy(jr.key(0))
    both = with_recording(network, ["[0]", "[1].value"])
    assert eqx.tree_equal(with_recording(both, "[0]"), both)
    again = with_recording(with_recording(network, "[0]"), "[1].value")
    assert eqx.tree_equal(again, both)


class Halves(StatelessModule):
    """Gives the sum of its two halves, and says what they were."""

    def __call__(self, state, x, rollout_extras=None):
        halves = {"left": x[:, :2], "right": x[:, 2:]}
        return output(halves["left"] + halves["right"], batch=len(x), metrics=halves)

    def recorded(self, result):
        return result.metrics["left"]


def test_a_module_says_what_is_recorded_of_it():
    x = jr.normal(jr.key(0), (3, 4))
    recorded = with_recording(Sequential([Halves(), Stateless(jnp.tanh)]))
    state = recorded.initialize_state(jr.split(jr.key(1), 3))
    found = extract_activations(recorded(state, x).metrics)
    np.testing.assert_array_equal(found["[0]"], x[:, :2])
    xs, is_first = jnp.stack([x, -x]), jnp.zeros((2, 3), jnp.bool_)
    found = extract_activations(unroll(recorded, state, xs, is_first).metrics)
    np.testing.assert_array_equal(found["[0]"], xs[..., :2])


def test_what_a_module_records_by_itself_is_found():
    metrics = {"0": {"kl": 1.0, "inner": {ACTIVATION_KEY: 2.0}}, "value": {"loss": 3.0}}
    assert extract_activations(metrics) == {"[0].inner": 2.0}
    assert extract_activations({"value": {"loss": 3.0}}) == {}


def test_statistics_are_kept_inside():
    network = Sequential([Normalizer(3), Dense(3, 2, key=jr.key(0))])
    recorded = with_recording(network, "*")
    xs, is_first = jr.normal(jr.key(1), (4, 2, 3)), jnp.zeros((4, 2), jnp.bool_)
    state = network.initialize_state(jr.split(jr.key(2)))
    extras = unroll(network, state, xs, is_first).rollout_extras
    updated = recorded.update_statistics(extras)
    expected = with_recording(network.update_statistics(extras), "*")
    assert_close(updated, expected)
    assert not tree_equal(updated, recorded)


def test_what_is_no_module_is_refused():
    with pytest.raises(CompositionError, match=r"Stateless\(fn\)"):
        Recorder(jnp.tanh)
    with pytest.raises(CompositionError, match="expected a module"):
        with_recording(jnp.tanh)


class Bare(StatelessModule):
    def __call__(self, state, x, rollout_extras=None):
        return x


def test_a_bare_value_is_refused_as_without_recording():
    network = with_recording(Sequential([Bare()]))
    with pytest.raises(CompositionError, match=r"return output\(value"):
        network(network.initialize_state(jr.split(jr.key(0))), jnp.ones((2, 3)))
