import functools as ft

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import jax.tree_util as jtu
import numpy as np
import pytest

from graphs import twelve_populations
from helpers import assert_close, tree_equal
from nnx_ppo_fn import (
    CompositionError,
    Dense,
    extract_activations,
    LSTM,
    NormalSampler,
    output,
    Override,
    partition_trainable,
    Recorder,
    SampledAction,
    Sequential,
    Stateless,
    StatelessModule,
    summary,
    unroll,
    with_override,
    with_recording,
)
from nnx_ppo_fn.algorithms.types import StaticHalf


XS = jr.normal(jr.key(1), (5, 2, 3))
IS_FIRST = jnp.array([[1, 1], [0, 0], [0, 1], [0, 0], [1, 0]], jnp.bool_)


def double(x):
    return 2 * x


def add_one(x):
    return x + 1


def network():
    first, second = jr.split(jr.key(0))
    return Sequential([LSTM(3, 4, key=first), Dense(4, 2, key=second)])


def outputs(network, xs=XS, is_first=IS_FIRST):
    state = network.initialize_state(jr.split(jr.key(2), is_first.shape[1]))
    return eqx.filter_jit(unroll)(network, state, xs, is_first)


def test_a_clamp_is_what_the_next_layer_sees():
    """The memory goes on: its carry is that of the network without the clamp."""
    plain = network()
    clamp = ft.partial(jnp.full_like, fill_value=0.5)
    result = outputs(with_override(plain, {"[0]": clamp}))
    expected = 0.5 * np.asarray(plain.layers[1].kernel).sum(0)
    np.testing.assert_allclose(result.output, np.broadcast_to(expected, (5, 2, 2)))
    assert tree_equal(result.next_state, outputs(plain).next_state)


def test_a_step_and_an_unroll_agree():
    changed = with_override(network(), {"[0]": double, "[1]": add_one})
    state = changed.initialize_state(jr.split(jr.key(2)))
    first = changed(state, XS[0])
    expected = outputs(changed, XS[:1], jnp.zeros((1, 2), jnp.bool_))
    assert_close(first.output, expected.output[0])


def test_gradients_pass_through_the_function():
    plain = network()

    @eqx.filter_grad
    def slope(network):
        return jnp.sum(outputs(network).output)

    doubled = slope(with_override(plain, {"[0]": double})).layers[0].wrapped
    larger = eqx.tree_at(lambda one: one.layers[1].kernel, plain, replace_fn=double)
    assert_close(doubled, slope(larger).layers[0])
    assert any(jnp.any(leaf != 0) for leaf in jax.tree.leaves(doubled))
    silent = slope(with_override(plain, {"[0]": jnp.zeros_like}))
    assert all(jnp.all(leaf == 0) for leaf in jax.tree.leaves(silent.layers[0]))


def test_a_lesioned_population_is_one_whose_weights_are_gone():
    """Inside of two loops with delays; its connections are linear, without a bias."""
    graph = twelve_populations(jr.key(0))
    outgoing = [one for one in graph.connections if one.startswith("V1->")]
    assert len(outgoing) == 2
    xs = {"image": XS[..., :2], "touch": XS[..., 1:]}

    def kernels(graph):
        return [graph.connections[name].transform.kernel for name in outgoing]

    cut = eqx.tree_at(kernels, graph, replace_fn=jnp.zeros_like)
    lesioned = with_override(graph, {".V1": jnp.zeros_like})
    assert_close(outputs(lesioned, xs).output, outputs(cut, xs).output)
    assert not tree_equal(outputs(cut, xs).output, outputs(graph, xs).output)
    pattern = with_override(graph, {".V1->*": jnp.zeros_like})
    assert_close(outputs(pattern, xs).output, outputs(cut, xs).output)


def test_a_recording_shows_what_others_see():
    plain, clamp = network(), {"[0]": jnp.ones_like}
    for both in (
        with_recording(with_override(plain, clamp), "[0]"),
        with_override(with_recording(plain, "[0]"), clamp),
    ):
        found = extract_activations(outputs(both).metrics)
        np.testing.assert_array_equal(found["[0]"], np.ones((5, 2, 4)))


class Telling(StatelessModule):
    """Has a hook that does not look at the output, and metrics of its own."""

    def __call__(self, state, x, rollout_extras=None):
        return output(x, batch=len(x), metrics={"twice": 2 * x})

    def recorded(self, result):
        return result.metrics["twice"]


@pytest.mark.parametrize(
    "looked_at",
    [
        lambda one: with_recording(with_override(one, {"": jnp.ones_like}), ""),
        lambda one: with_override(with_recording(one, ""), {"": jnp.ones_like}),
        lambda one: Recorder(Override(one, jnp.ones_like)),
        lambda one: Override(Recorder(one), jnp.ones_like),
        lambda one: Override(Recorder(Override(one, double)), jnp.ones_like),
    ],
)
def test_of_an_overridden_module_its_output_is_recorded(looked_at):
    network = looked_at(Telling())
    ones = np.ones((5, 2, 3))
    result = unroll(network, (), XS, IS_FIRST)
    np.testing.assert_array_equal(extract_activations(result.metrics)[""], ones)
    np.testing.assert_array_equal(result.metrics["twice"], 2 * XS)
    step = network((), XS[0])
    np.testing.assert_array_equal(extract_activations(step.metrics)[""], ones[0])


class Clamp(eqx.Module):
    value: jax.Array

    def __call__(self, x):
        return jnp.broadcast_to(self.value, x.shape)

    def clamped(self, x):
        return self(x)


@pytest.mark.parametrize(
    "clamp",
    [
        lambda: Clamp(jnp.full(4, 0.5)),
        lambda: ft.partial(jnp.full_like, fill_value=jnp.full(4, 0.5)),
        lambda: ft.partial(jnp.full_like, fill_value=np.full(4, 0.5)),
        lambda: ft.partial(jax.tree.map, Clamp(jnp.full(4, 0.5))),
        lambda: ft.partial(jax.tree.map, ft.partial(Clamp(jnp.full(4, 0.5)))),
        lambda: jtu.Partial(jnp.full_like, fill_value=jnp.full(4, 0.5)),
        lambda: Clamp(jnp.full(4, 0.5)).clamped,
    ],
)
def test_arrays_of_a_function_do_not_train(clamp):
    plain = network()
    changed = with_override(plain, {"[0]": clamp()})
    parameters, rest = (jax.tree.leaves(one) for one in partition_trainable(changed))
    assert len(parameters) == len(jax.tree.leaves(partition_trainable(plain)[0]))
    held = [leaf for leaf in rest if eqx.is_array(leaf) and leaf.shape == (4,)]
    np.testing.assert_array_equal(held, [np.full(4, 0.5)])
    assert summary(changed).non_trainable == 4
    expected = outputs(with_override(plain, {"[0]": half})).output
    np.testing.assert_array_equal(outputs(changed).output, expected)


def half(x):
    return jnp.full_like(x, 0.5)


def compilations(fns):
    """How often a function of networks compiles, and how their static halves differ."""
    plain = network()
    networks = [with_override(plain, {"[0]": fn}) for fn in fns]
    count = 0

    @eqx.filter_jit
    def run(network):
        nonlocal count
        count += 1
        return network(network.initialize_state(jr.split(jr.key(2))), XS[0]).output

    found = [np.asarray(run(one)) for one in networks]
    assert len({StaticHalf.of(one) for one in networks}) == count
    return count, found


def shifted(x, by, *, scale=1.0):
    return scale * x + by


def test_partial_functions_compare_by_value():
    equal = {
        "a number": lambda: ft.partial(shifted, by=0.5),
        "of a partial": lambda: ft.partial(ft.partial(shifted, by=0.5), scale=2.0),
        "in a partial": lambda: ft.partial(jax.tree.map, ft.partial(shifted, by=0.5)),
        "of a module": lambda: ft.partial(Clamp(jnp.ones(4))),
        "jax's": lambda: jtu.Partial(shifted, by=0.5),
        "a module": lambda: Clamp(jnp.ones(4)),
    }
    for name, make in equal.items():
        assert compilations([make(), make()])[0] == 1, name
    assert compilations([ft.partial(shifted, by=one) for one in (0.5, 1.5)])[0] == 2


def test_other_arrays_do_not_compile_anew():
    for make in (Clamp, lambda value: ft.partial(shifted, by=value)):
        values = jnp.ones((1, 4)), jnp.zeros((1, 4))
        count, (first, second) = compilations(map(make, values))
        assert count == 1
        assert not np.array_equal(first, second)


def weak(x):
    return jnp.full(x.shape, 0.5)


def test_a_weak_type_does_not_spread():
    """It would change the carry of what comes next, which could not be scanned."""
    assert weak(XS).weak_type
    changed = with_override(Sequential([Stateless(jnp.tanh)]), {"[0]": weak})
    assert not changed(((),), XS[0]).output.weak_type
    assert not outputs(changed).output.weak_type


def test_several_are_applied_one_after_the_other():
    plain = Sequential([Stateless(jnp.tanh)])
    changed = with_override(plain, {"[0]": double, "[*]": add_one})
    assert_close(outputs(changed).output, 2 * jnp.tanh(XS) + 1)
    again = with_override(with_override(plain, {"[0]": add_one}), {"[0]": double})
    assert_close(outputs(again).output, 2 * (jnp.tanh(XS) + 1))


def test_the_network_itself_can_be_overridden():
    changed = with_override(network(), {"": jnp.zeros_like})
    np.testing.assert_array_equal(outputs(changed).output, np.zeros((5, 2, 2)))


@pytest.mark.parametrize(
    "fn, came",
    [
        (lambda x: x[:, :1], r"got float32 \[10, 1\]"),
        (lambda x: x > 0, r"got bool \[10, 4\]"),
        (lambda x: {"y": x}, r"got dict of float32 \['y'\] \[10, 4\]"),
        (lambda x: 0.0, "got float 0.0\n"),
    ],
)
def test_another_shape_or_dtype_is_refused(fn, came):
    with pytest.raises(CompositionError, match=rf"float32 \[10, 4\], .*{came}"):
        outputs(with_override(network(), {"[0]": fn}))


def sampling():
    return Sequential([Dense(3, 4, key=jr.key(0)), NormalSampler(0.1)])


def test_a_function_of_arrays_does_not_take_a_tree():
    """JAX speaks of the type of an argument that the user has never seen."""
    lesioned = with_override(sampling(), {"[1]": jnp.zeros_like})
    message = (
        r"in Sequential\[1\] \(Override\): expected an override to take "
        r"SampledAction of float32 .action \[10, 2\], .log_likelihood \[10\], got "
        r"TypeError from it: .*functools.partial\(jax.tree.map, fn\) maps"
    )
    with pytest.raises(CompositionError, match=message) as caught:
        outputs(lesioned)
    assert isinstance(caught.value.__cause__, TypeError)


def test_the_leaves_of_a_tree_can_be_overridden():
    lesion = ft.partial(jax.tree.map, jnp.zeros_like)
    found = outputs(with_override(sampling(), {"[1]": lesion})).output
    assert tree_equal(found, SampledAction(jnp.zeros((5, 2, 2)), jnp.zeros((5, 2))))


def test_what_a_function_raises_on_an_array_is_located():
    changed = with_override(network(), {"[0]": ft.partial(shifted, by=jnp.ones(3))})
    with pytest.raises(CompositionError, match=r"Sequential\[0\].*float32 \[10, 4\], "):
        outputs(changed)


def test_in_a_graph_the_population_is_named():
    xs = {"image": XS[..., :2], "touch": XS[..., 1:]}
    changed = with_override(twelve_populations(jr.key(0)), {".V1": jnp.sum})
    expected = r"PopulationGraph.V1 \(Override\): expected an override to return"
    with pytest.raises(CompositionError, match=expected):
        outputs(changed, xs)


def test_wrong_arguments_are_refused():
    with pytest.raises(ValueError, match=r"no module stands at '\[2\]' \(did you mean"):
        with_override(network(), {"[2]": jnp.zeros_like})
    with pytest.raises(TypeError, match="such as jnp.zeros_like, got 0"):
        Override(network(), 0)
    with pytest.raises(CompositionError, match="expected a module"):
        with_override(jnp.tanh, {"": jnp.zeros_like})
