import functools as ft

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from graphs import twelve_populations
from helpers import assert_close, tree_equal
from nnx_ppo_fn import (
    CompositionError,
    Dense,
    extract_activations,
    LSTM,
    Override,
    Sequential,
    Stateless,
    unroll,
    with_override,
    with_recording,
)


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
        (lambda x: {"y": x}, r"got float32 \['y'\] \[10, 4\]"),
        (lambda x: 0.0, "got float 0.0\n"),
    ],
)
def test_another_shape_or_dtype_is_refused(fn, came):
    with pytest.raises(CompositionError, match=rf"float32 \[10, 4\], .*{came}"):
        outputs(with_override(network(), {"[0]": fn}))


def test_wrong_arguments_are_refused():
    with pytest.raises(ValueError, match=r"no module stands at '\[2\]' \(did you mean"):
        with_override(network(), {"[2]": jnp.zeros_like})
    with pytest.raises(TypeError, match="such as jnp.zeros_like, got 0"):
        Override(network(), 0)
    with pytest.raises(CompositionError, match="expected a module"):
        with_override(jnp.tanh, {"": jnp.zeros_like})
