import dataclasses
import re

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from graphs import twelve_populations
from helpers import assert_close, small_network, tree_equal
from kernels import AS_USERS
from nnx_ppo_fn import (
    CategoricalSampler,
    CompositionError,
    Dense,
    extract_activations,
    LSTM,
    Normalizer,
    normals,
    output,
    Parallel,
    PopulationGraphBuilder,
    PPOAdapter,
    Recorder,
    Sequential,
    StatefulModule,
    Stateless,
    StatelessModule,
    StochasticModule,
    summary,
    unroll,
    with_override,
    with_recording,
)
from nnx_ppo_fn.networks._wrapping import matching, selected
from nnx_ppo_fn.networks.types import ACTIVATION_KEY, has_inference_flag
from nnx_ppo_fn.testing import check_module
from testing.shipped_modules import bank, one_of_each_class, outlines


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


def without_activations(metrics):
    """Metrics as they would be if nobody looked."""
    left = {
        name: without_activations(value) if isinstance(value, dict) else value
        for name, value in metrics.items()
        if name != ACTIVATION_KEY
    }
    return {name: value for name, value in left.items() if jax.tree.leaves(value)}


def everything(network, x):
    """All that a network says in a step and in an unroll with resets, by name."""
    rows = len(jax.tree.leaves(x)[0])
    state = network.initialize_state(jr.split(jr.key(2), rows))
    is_first = jnp.zeros((3, rows), jnp.bool_).at[0].set(True).at[1, 0].set(True)
    xs = jax.tree.map(lambda leaf: jnp.stack([leaf, leaf[::-1], leaf]), x)
    step = eqx.filter_jit(
        lambda network, state, x: network(state, x), compiler_options=AS_USERS
    )
    run = eqx.filter_jit(unroll, compiler_options=AS_USERS)
    said = {
        "step": step(network, state, x),
        "unroll": run(network, state, xs, is_first),
    }
    return {"reset": network.reset_state(state)} | {
        name: dataclasses.replace(result, metrics=without_activations(result.metrics))
        for name, result in said.items()
    }


def identity(x):
    return x


def looked_at(network):
    """Every module overridden by what it says anyway, and recorded."""
    return with_recording(with_override(network, {"*": identity}), "*")


NAMES = one_of_each_class()
GROUPS = [(NAMES[0::2], False), (NAMES[1::2], False), (NAMES, True)]


@pytest.mark.parametrize("names, inference", GROUPS)
def test_looking_changes_no_bit_of_any_module(names, inference):
    if inference:
        names = [name for name in names if has_inference_flag(outlines()[name])]
    network, x = bank(names, key=jr.key(0))
    network = eqx.nn.inference_mode(network, inference)
    expected, found = everything(network, x), everything(looked_at(network), x)
    for name in expected:
        assert tree_equal(found[name], expected[name]), name


def test_looking_changes_no_bit_of_a_graph():
    graph, xs = graph_and_inputs()
    x = jax.tree.map(lambda leaf: leaf[0], xs)
    assert tree_equal(everything(looked_at(graph), x), everything(graph, x))


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


def test_a_second_call_records_what_it_selects_and_nothing_else():
    network = policy(jr.key(0))
    first = with_recording(network, ["[0]", "[1].value"])
    assert eqx.tree_equal(
        with_recording(first, "[1]*"), with_recording(network, "[1]*")
    )
    assert eqx.tree_equal(with_recording(first), with_recording(network))
    assert eqx.tree_equal(with_recording(first, ()), network)
    lesioned = with_override(first, {"[0]": identity})
    expected = with_override(network, {"[0]": identity})
    assert eqx.tree_equal(with_recording(lesioned, ()), expected)


@pytest.mark.parametrize(
    "name, path",
    [
        ("0", "[0]"),
        ("17", "[17]"),
        ("M1", ".M1"),
        ("M1->M1 (2)", ".M1->M1 (2)"),
        ("a.b", "['a.b']"),
        ("*", "['*']"),
        ("[0]", "['[0]']"),
    ],
)
def test_any_name_of_a_child_has_one_path(name, path):
    """In `summary`, in what selects the module, and in what it has recorded."""
    network = Parallel({name: Sequential([Stateless(jnp.tanh), Stateless(jnp.sin)])})
    assert [row.place for row in summary(network).rows] == [
        "",
        path,
        f"{path}[0]",
        f"{path}[1]",
    ]
    x = jnp.ones((2, 3))
    recorded = with_recording(network, f"{path}[0]")
    found = extract_activations(recorded({name: ((), ())}, x).metrics)
    assert found.keys() == {f"{path}[0]"}


def test_an_exact_path_selects_one_module():
    names = ["a*b", "a.b", "*", "a.*.b", "[0]"]
    network = Parallel({name: Stateless(jnp.tanh) for name in names})
    paths = [row.place for row in summary(network).rows]
    for path in paths:
        assert matching(path, paths) == [path]


def test_a_star_stands_for_any_characters():
    assert matching(".a*", [".a", ".a\nb", ".b"]) == [".a", ".a\nb"]


@pytest.mark.parametrize("select", [3, b"[0]", [3], ["[0]", None], {"[0]": 1}.get])
def test_what_is_no_selection_is_refused(select):
    with pytest.raises(TypeError, match="path of a module"):
        selected(select, ["[0]"])


def test_a_selection_is_in_the_order_that_was_asked_for():
    paths = ["", "[0]", "[1]", "[1].a", "[1].b"]
    assert selected(["[1].b", "[1]*", "[0]"], paths) == [
        "[1].b",
        "[1]",
        "[1].a",
        "[0]",
    ]
    assert selected("[0]", paths) == ["[0]"]
    assert selected((), paths) == []


def test_no_child_is_called_as_recordings_are():
    with pytest.raises(ValueError, match="'__activation__'.*recordings"):
        Parallel({ACTIVATION_KEY: Stateless(jnp.tanh), "b": Stateless(jnp.sin)})


def test_a_recorder_of_a_recorder_is_one():
    x = jr.normal(jr.key(0), (2, 4))
    twice = Recorder(Recorder(Halves()))
    np.testing.assert_array_equal(twice((), x).metrics[ACTIVATION_KEY], x[:, :2])
    xs, is_first = jnp.stack([x, -x]), jnp.zeros((2, 2), jnp.bool_)
    found = unroll(twice, (), xs, is_first).metrics[ACTIVATION_KEY]
    np.testing.assert_array_equal(found, xs[..., :2])


def six_features(x):
    return x.reshape(len(x), 6)


@pytest.mark.parametrize(
    "around",
    [
        lambda net: net,
        with_recording,
        lambda net: with_override(net, {"*": identity}),
        lambda net: with_recording(with_override(net, {"*": identity}), "*"),
    ],
)
def test_errors_name_the_module_inside(around):
    network = around(layers(jr.key(0)))
    with pytest.raises(CompositionError, match=r"^in Sequential\[0\] \(Dense\): "):
        network(((), ()), jnp.ones((2, 5)))
    broken = around(Sequential([Stateless(six_features)]))
    with pytest.raises(TypeError) as caught:
        broken(((),), jnp.ones((2, 5)))
    assert "in Sequential[0] (Stateless)" in caught.value.__notes__


def test_names_that_look_like_paths_are_not_taken_for_them():
    network = Parallel(
        {"a": Parallel({"b": Stateless(jnp.tanh)}), "a.b": Stateless(jnp.sin)}
    )
    recorded = with_recording(network)
    state = recorded.initialize_state(jr.split(jr.key(0)))
    found = extract_activations(recorded(state, jnp.ones((2, 3))).metrics)
    assert found.keys() == {".a.b", "['a.b']"}


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


class Integrator(StatefulModule):
    """Adds up what it gets, halved at each step; its output is the sum's sign."""

    def initialize_state(self, keys):
        return jnp.zeros((len(keys), 2))

    def reset_state(self, state):
        return jnp.zeros_like(state)

    def __call__(self, state, x, rollout_extras=None):
        total = state / 2 + x
        return output(jnp.sign(total), batch=len(x), next_state=total)

    def recorded(self, result):
        return {"sign": result.output, "total": result.next_state}


@pytest.mark.parametrize("around", [lambda one: one, lambda one: Sequential([one])])
def test_a_module_may_record_its_carry(around):
    """Of every step, in an unroll too, with the resets between them."""
    network = around(Integrator())
    path = summary(network).rows[-1].place
    recorded = with_recording(network, "*")
    xs = jr.normal(jr.key(1), (len(IS_FIRST), 2, 2))
    state = recorded.initialize_state(jr.split(jr.key(0)))
    at_once = unroll(recorded, state, xs, IS_FIRST)
    total, expected = np.zeros((2, 2)), []
    for x, first in zip(np.asarray(xs, np.float64), IS_FIRST, strict=True):
        total = np.where(np.asarray(first)[:, None], 0, total) / 2 + x
        expected.append(total)
    found = extract_activations(at_once.metrics)[path]
    np.testing.assert_allclose(found["total"], expected, atol=1e-6)
    np.testing.assert_array_equal(found["sign"], np.sign(expected))
    first_step = extract_activations(recorded(state, xs[0]).metrics)[path]
    np.testing.assert_allclose(first_step["total"], expected[0], atol=1e-6)


def test_what_a_module_records_by_itself_is_found():
    metrics = {"0": {"kl": 1.0, "inner": {ACTIVATION_KEY: 2.0}}, "value": {"loss": 3.0}}
    assert extract_activations(metrics) == {"[0].inner": 2.0}
    assert extract_activations({"value": {"loss": 3.0}}) == {}


class Jitter(StochasticModule):
    """Records its noise, which it does not put out by itself."""

    def apply(self, draw, x, rollout_extras=None):
        noise = normals(draw, x.shape[-1])
        return output(x + noise, batch=len(x), metrics={"noise": noise})

    def recorded(self, result):
        return result.metrics["noise"]


def test_what_a_module_records_obeys_the_laws():
    network = with_recording(Sequential([Integrator(), Jitter()]), "*")
    check_module(network, jr.normal(jr.key(1), (4, 2)), key=jr.key(0), length=4)


class Loose(StatelessModule):
    """Records something that has no row for each environment."""

    what: object

    def __call__(self, state, x, rollout_extras=None):
        return output(x, batch=len(x))

    def recorded(self, result):
        return {"x": result.output, "what": self.what}


@pytest.mark.parametrize(
    "what, came",
    [(0.5, "float"), (jnp.ones(()), r"\[\]"), (jnp.ones((3, 2)), r"\[3, 2\]")],
)
def test_what_has_no_rows_is_not_recorded(what, came):
    network = with_recording(Sequential([Loose(what)]))
    message = rf"Loose.recorded to return arrays \[B, ...\] with B = 2, got {came}"
    with pytest.raises(CompositionError, match=message):
        network(((),), jnp.ones((2, 3)))


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
