import functools as ft

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from jax.extend.core import jaxprs_in_params

from helpers import tree_equal
from nnx_ppo_fn.networks._errors import CompositionError
from nnx_ppo_fn.networks._trainable import partition_trainable
from nnx_ppo_fn.networks.recurrent import GRU, LSTM, RecurrentModule
from nnx_ppo_fn.networks.unroll import unroll


IN, HIDDEN, B, T = 3, 5, 4, 20
KINDS = [LSTM, GRU]
jitted_unroll = eqx.filter_jit(unroll)


def never(length=T):
    return jnp.zeros((length, B), bool)


def with_bias(cell, key):
    return eqx.tree_at(lambda c: c.bias, cell, jr.normal(key, cell.bias.shape))


def flax_cell(cell):
    """The cell of flax with the same weights, and a step of it: `(carry, x) -> ...`."""
    nnx = pytest.importorskip("flax.nnx")
    kind, biased = (
        (nnx.OptimizedLSTMCell, "dense_h")
        if isinstance(cell, LSTM)
        else (nnx.GRUCell, "dense_i")
    )
    theirs = kind(IN, HIDDEN, rngs=nnx.Rngs(0))
    theirs.dense_i.kernel[...] = cell.kernel
    theirs.dense_h.kernel[...] = cell.recurrent_kernel
    getattr(theirs, biased).bias[...] = cell.bias
    return theirs


@pytest.mark.parametrize("kind", KINDS)
def test_the_equations_are_those_of_flax(kind, getkey):
    cell = with_bias(kind(IN, HIDDEN, key=getkey()), getkey())
    theirs = flax_cell(cell)
    xs = jr.normal(getkey(), (T, B, IN))
    hidden = jr.normal(getkey(), (B, HIDDEN))
    # flax carries (c, h), this package (h, c).
    carry = (hidden / 2, hidden) if kind is LSTM else hidden
    state = (hidden, hidden / 2) if kind is LSTM else hidden

    result = jitted_unroll(cell, state, xs, never())
    for t in range(T):
        carry, expected = theirs(carry, xs[t])
        np.testing.assert_allclose(result.output[t], expected, atol=1e-6)
    carry = carry[::-1] if kind is LSTM else carry
    for ours, flaxs in zip(
        jax.tree.leaves(result.next_state), jax.tree.leaves(carry), strict=True
    ):
        np.testing.assert_allclose(ours, flaxs, atol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_fresh_weights_are_distributed_as_those_of_flax(kind, getkey):
    cell = kind(200, 50, key=getkey())
    np.testing.assert_array_equal(cell.bias, np.zeros(cell.bias.shape))
    assert abs(np.std(cell.kernel) * 200**0.5 - 1) < 0.03
    recurrent = np.float64(cell.recurrent_kernel)
    np.testing.assert_allclose(recurrent @ recurrent.T, np.eye(50), atol=1e-5)


def test_a_step_of_lstm_by_hand():
    ones = jax.nn.initializers.ones
    cell = LSTM(1, 1, key=jr.key(0), kernel_init=ones, recurrent_kernel_init=ones)
    result = cell((jnp.array([[0.25]]), jnp.array([[2.0]])), jnp.array([[0.5]]))
    gate, candidate = 1 / (1 + np.exp(-0.75)), np.tanh(0.75)
    memory = gate * 2 + gate * candidate
    np.testing.assert_allclose(result.next_state[1], [[memory]], rtol=1e-6)
    np.testing.assert_allclose(result.output, [[gate * np.tanh(memory)]], rtol=1e-6)


def test_a_step_of_gru_by_hand():
    ones = jax.nn.initializers.ones
    cell = GRU(1, 1, key=jr.key(0), kernel_init=ones, recurrent_kernel_init=ones)
    result = cell(jnp.array([[0.25]]), jnp.array([[0.5]]))
    gate = 1 / (1 + np.exp(-0.75))
    expected = (1 - gate) * np.tanh(0.5 + gate * 0.25) + gate * 0.25
    np.testing.assert_allclose(result.output, [[expected]], rtol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_own_nonlinearities_are_used(kind):
    cell = kind(
        IN, HIDDEN, key=jr.key(0), gate_fn=jnp.zeros_like, activation_fn=jnp.ones_like
    )
    state = cell.initialize_state(jr.split(jr.key(0), B))
    # With closed gates an LSTM emits nothing, and a GRU takes on its candidate, 1.
    expected = 0 if kind is LSTM else 1
    result = cell(state, jnp.ones((B, IN)))
    np.testing.assert_array_equal(result.output, np.full((B, HIDDEN), expected))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("trainable", [False, True])
def test_reset_does_not_look_at_the_old_carry(kind, trainable, getkey):
    cell = kind(IN, HIDDEN, key=getkey(), trainable_initial_state=trainable)
    if trainable:
        trained = jax.tree.map(lambda leaf: leaf + 0.5, cell.initial_state)
        cell = eqx.tree_at(lambda c: c.initial_state, cell, trained)
    fresh = cell.initialize_state(jr.split(getkey(), B))
    for leaf in jax.tree.leaves(fresh):
        np.testing.assert_array_equal(leaf, np.full((B, HIDDEN), 0.5 * trainable))
    for number in (jnp.nan, 1e30):
        old = jax.tree.map(ft.partial(jnp.full_like, fill_value=number), fresh)
        assert tree_equal(cell.reset_state(old), fresh)


@pytest.mark.parametrize("kind", KINDS)
def test_every_episode_start_trains_the_initial_state(kind, getkey):
    cell = kind(IN, HIDDEN, key=getkey(), trainable_initial_state=True)
    state = cell.initialize_state(jr.split(getkey(), B))
    state = jax.tree.map(lambda leaf: leaf + 0.1, state)
    xs = jr.normal(getkey(), (4, B, IN))

    @jax.jit
    def gradient(is_first):
        def loss(initial_state):
            module = eqx.tree_at(lambda c: c.initial_state, cell, initial_state)
            return jnp.sum(unroll(module, state, xs, is_first).output ** 2)

        return jax.grad(loss)(cell.initial_state)

    def norms(*starts):
        is_first = never(4)
        for t, b in starts:
            is_first = is_first.at[t, b].set(True)
        return [float(jnp.sum(abs(g))) for g in jax.tree.leaves(gradient(is_first))]

    assert norms() == [0] * len(norms())
    assert all(norm > 0 for norm in norms((0, 1)))
    assert all(norm > 0 for norm in norms((2, 3)))
    # The episodes of different environments add up.
    together = jax.tree.leaves(gradient(never(4).at[0, 1].set(True).at[2, 3].set(True)))
    apart = zip(
        jax.tree.leaves(gradient(never(4).at[0, 1].set(True))),
        jax.tree.leaves(gradient(never(4).at[2, 3].set(True))),
        strict=True,
    )
    for both, (one, other) in zip(together, apart, strict=True):
        np.testing.assert_allclose(both, one + other, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_only_weights_and_a_trainable_initial_state_train(kind, getkey):
    n_states = 2 if kind is LSTM else 1
    for trainable in (False, True):
        cell = kind(IN, HIDDEN, key=getkey(), trainable_initial_state=trainable)
        parameters, _ = partition_trainable(cell)
        assert len(jax.tree.leaves(parameters)) == 3 + n_states * trainable


@pytest.mark.parametrize("kind", KINDS)
def test_half_precision_inputs_keep_a_float32_memory(kind, getkey):
    cell = kind(IN, HIDDEN, key=getkey())
    state = cell.initialize_state(jr.split(getkey(), B))
    x = jr.normal(getkey(), (B, IN)).astype(jnp.bfloat16)
    result = cell(state, x)
    assert result.output.dtype == jnp.bfloat16
    assert {leaf.dtype for leaf in jax.tree.leaves(result.next_state)} == {
        jnp.dtype("float32")
    }
    wide = cell(state, x.astype(jnp.float32))
    assert tree_equal(result.next_state, wide.next_state)


@pytest.mark.parametrize("kind", KINDS)
def test_extras_pass_through(kind, getkey):
    cell = kind(IN, HIDDEN, key=getkey())
    state = cell.initialize_state(jr.split(getkey(), B))
    assert cell(state, jnp.ones((B, IN)), "extras").rollout_extras == "extras"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("sizes", [(0, 2), (2, 0)])
def test_sizes_of_zero_are_refused(kind, sizes):
    with pytest.raises(ValueError, match=f"{kind.__name__} needs at least one input"):
        kind(*sizes, key=jr.key(0))


@pytest.mark.parametrize("kind, width", [(LSTM, 4), (GRU, 3)])
def test_the_scan_holds_one_matrix_product(kind, width):
    """The input's projection is one product of `T * B` rows, outside of the scan."""
    cell = kind(IN, HIDDEN, key=jr.key(0))
    state = cell.initialize_state(jr.split(jr.key(0), B))
    jaxpr = jax.make_jaxpr(lambda xs: unroll(cell, state, xs, never()).output)(
        jnp.ones((T, B, IN))
    )

    def products(jaxpr, loops=0):
        for equation in jaxpr.eqns:
            if equation.primitive.name == "dot_general":
                yield equation.outvars[0].aval.shape, loops
            for inner in jaxprs_in_params(equation.params):
                is_loop = equation.primitive.name == "scan"
                yield from products(getattr(inner, "jaxpr", inner), loops + is_loop)

    outside, inside = (T * B, width * HIDDEN), (B, width * HIDDEN)
    assert list(products(jaxpr.jaxpr)) == [(outside, 0), (inside, 1)]


class _OneOfTwo(RecurrentModule):
    """Forgets to return its value."""

    in_features: int = eqx.field(static=True, default=2)

    def fresh_state(self, batch):
        return jnp.zeros((batch, 2))

    def project(self, x):
        return x

    def recur(self, state, projected):
        return state + projected


def test_a_cell_that_returns_one_of_two_is_told_so(getkey):
    cell, x = _OneOfTwo(), jnp.ones((3, 2))
    state = cell.initialize_state(jr.split(getkey(), 3))
    message = r"recur to return \(next_state, value\), got .*\[3, 2\]"
    with pytest.raises(CompositionError, match=message):
        cell(state, x)
    with pytest.raises(CompositionError, match=message):
        cell.unroll(state, x[None], jnp.zeros((1, 3), bool))
