import equinox as eqx
import jax
import jax.extend as jex
import jax.numpy as jnp
import jax.random as jr
import jax.tree_util as jtu
import numpy as np
import pytest

from helpers import assert_close, tree_equal
from nnx_ppo_fn import partition_trainable
from nnx_ppo_fn.networks.attention import WindowedAttention
from nnx_ppo_fn.networks.unroll import unroll, unroll_by_step


IN, OUT, HEADS, SIZE, B = 3, 5, 2, 4, 4
jitted_unroll = eqx.filter_jit(unroll)


def trained(window, getkey):
    """A layer whose weights are all at random."""
    layer = WindowedAttention(
        IN, OUT, key=getkey(), window=window, heads=HEADS, head_features=SIZE
    )
    parameters, rest = partition_trainable(layer)
    parameters = jtu.tree_map(
        lambda leaf: leaf + 0.5 * jr.normal(getkey(), leaf.shape), parameters
    )
    return eqx.combine(parameters, rest)


def born(layer):
    return layer.initialize_state(jr.split(jr.key(0), B))


def in_float64(layer, xs, is_first):
    """Attention written out: for every step, the softmax over the steps it may see."""
    weights = jtu.tree_map(np.float64, eqx.filter(layer, eqx.is_array))
    xs, outputs = np.float64(xs), np.zeros((*xs.shape[:2], OUT))
    for row in range(xs.shape[1]):
        begin = 0
        for t in range(len(xs)):
            begin = t if is_first[t, row] else begin
            times = np.arange(max(begin, t - layer.window + 1), t + 1)
            parts = xs[times, row] @ weights.kernel + weights.bias
            parts = parts.reshape(len(times), 3, HEADS, SIZE)
            heads = []
            for head in range(HEADS):
                query = parts[-1, 0, head]
                key, value = parts[:, 1, head], parts[:, 2, head]
                score = key @ query / 2 + weights.distance_bias[head, t - times]
                share = np.exp(score) / np.sum(np.exp(score))
                heads.append(share @ value)
            outputs[t, row] = (
                np.concatenate(heads) @ weights.output_kernel
                + xs[t, row] @ weights.skip_kernel
                + weights.output_bias
            )
    return outputs


@pytest.mark.parametrize("window, length", [(1, 5), (3, 11), (6, 6), (20, 7)])
def test_it_is_a_softmax_over_the_window(window, length, getkey):
    layer, xs = trained(window, getkey), jr.normal(getkey(), (length, B, IN))
    is_first = jr.bernoulli(getkey(), 0.2, (length, B)).at[:, 0].set(False)
    result = jitted_unroll(layer, born(layer), xs, is_first)
    expected = in_float64(layer, xs, is_first)
    np.testing.assert_allclose(result.output, expected, rtol=1e-5, atol=1e-5)
    # The same rollout in two, and step by step.
    half = jitted_unroll(layer, born(layer), xs[:4], is_first[:4]).next_state
    rest = jitted_unroll(layer, half, xs[4:], is_first[4:])
    np.testing.assert_allclose(rest.output, expected[4:], rtol=1e-5, atol=1e-5)
    by_steps = eqx.filter_jit(unroll_by_step)(layer, born(layer), xs, is_first)
    np.testing.assert_allclose(by_steps.output, expected, rtol=1e-5, atol=1e-5)
    assert_close(result.next_state, by_steps.next_state, tolerance=1e-6)
    assert_close(rest.next_state, by_steps.next_state, tolerance=1e-6)


def test_who_sees_whom(getkey):
    """A change shows in the window behind it, up to the end of the episode."""
    layer, xs = trained(3, getkey), jr.normal(getkey(), (10, B, IN))
    is_first = jnp.zeros((10, B), bool).at[5, 1].set(True)
    state = jitted_unroll(layer, born(layer), xs[::-1], is_first).next_state
    plain = jitted_unroll(layer, state, xs, is_first).output
    for number in (7.0, jnp.nan):
        changed = xs.at[4, :2].set(number)
        seen = jitted_unroll(layer, state, changed, is_first).output
        expected = np.zeros((10, B), bool)
        expected[4:7, 0] = True
        expected[4, 1] = True
        np.testing.assert_array_equal(np.any(seen != plain, axis=-1), expected)
        if np.isnan(number):
            np.testing.assert_array_equal(np.isnan(seen).all(-1), expected)


def test_a_carry_that_went_wrong_ends_with_its_episode(getkey):
    layer, xs = trained(4, getkey), jr.normal(getkey(), (6, B, IN))
    is_first = jnp.zeros((6, B), bool).at[2, 0].set(True)
    state = jitted_unroll(layer, born(layer), xs[::-1], is_first).next_state
    poisoned = jtu.tree_map(
        lambda leaf: leaf.at[0].set(jnp.nan) if eqx.is_inexact_array(leaf) else leaf,
        state,
    )
    found = jitted_unroll(layer, poisoned, xs, is_first)
    clean = jitted_unroll(layer, state, xs, is_first)
    assert np.all(np.isnan(found.output[:2, 0]))
    np.testing.assert_array_equal(found.output[2:, 0], clean.output[2:, 0])
    np.testing.assert_array_equal(found.output[:, 1:], clean.output[:, 1:])
    assert tree_equal(found.next_state, clean.next_state)


def test_a_rollout_of_no_steps_keeps_the_carry(getkey):
    layer = trained(3, getkey)
    state = layer(born(layer), jr.normal(getkey(), (B, IN))).next_state
    nothing = unroll(layer, state, jnp.zeros((0, B, IN)), jnp.zeros((0, B), bool))
    assert nothing.output.shape == (0, B, OUT)
    assert tree_equal(nothing.next_state, state)


def test_scores_are_a_band_and_no_loop_holds_a_product(getkey):
    layer, length = trained(4, getkey), 256
    state, is_first = born(layer), jnp.zeros((length, B), bool)

    def loss(xs):
        return jnp.sum(unroll(layer, state, xs, is_first).output)

    def equations(jaxpr):
        for equation in jaxpr.eqns:
            yield equation
            for inner in jex.core.jaxprs_in_params(equation.params):
                yield from equations(inner)

    jaxpr = jax.make_jaxpr(jax.grad(loss))(jnp.ones((length, B, IN))).jaxpr
    found = list(equations(jaxpr))
    largest = max(out.aval.size for one in found for out in one.outvars)
    # Scores of a head and environment with the window of 4, and the one before it.
    assert largest <= length * B * HEADS * max(2 * 4, 3 * SIZE)
    assert not [one for one in found if one.primitive.name in ("scan", "while")]


def test_a_fresh_layer_prefers_recent_steps_as_in_alibi():
    layer = WindowedAttention(2, 16, key=jr.key(0), window=3, heads=8)
    slopes = 1 / 2 ** np.arange(1, 9)
    expected = -slopes[:, None] * np.arange(3)
    np.testing.assert_allclose(layer.distance_bias, expected, rtol=1e-6)
    assert layer.head_features == 2


def test_heads_need_not_divide_the_output():
    layer = WindowedAttention(2, 7, key=jr.key(0), heads=3)
    assert layer.head_features == 3 and layer.output_kernel.shape == (9, 7)


@pytest.mark.parametrize("name", ["window", "heads", "head_features"])
def test_sizes_of_zero_are_refused(name):
    with pytest.raises(ValueError, match=f"{name} must be at least 1, got 0"):
        WindowedAttention(2, 2, key=jr.key(0), **{name: 0})


def test_half_precision_keeps_a_float32_memory(getkey):
    layer = trained(3, getkey)
    coarse = jtu.tree_map(lambda leaf: leaf.astype(jnp.bfloat16), layer)
    x = jr.normal(getkey(), (B, IN)).astype(jnp.bfloat16)
    for module in (layer, coarse):
        for result in (
            module(born(layer), x),
            unroll(module, born(layer), x[None], jnp.ones((1, B), bool)),
        ):
            assert result.output.dtype == jnp.bfloat16
            memory = result.next_state.memory.buffer
            assert {leaf.dtype for leaf in memory.values()} == {jnp.dtype("float32")}
