import functools as ft
import math

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
from nnx_ppo_fn.networks import _linear_scan
from nnx_ppo_fn.networks._errors import CompositionError
from nnx_ppo_fn.networks.linear_recurrent import LinearRecurrentModule, LRU, MinGRU
from nnx_ppo_fn.networks.unroll import unroll, unroll_by_step


IN, HIDDEN, B, T = 3, 5, 4, 20
KINDS = [LRU, MinGRU]
jitted_unroll = eqx.filter_jit(unroll)


def trained(kind, getkey, **options):
    """A cell whose weights are all at random."""
    cell = kind(IN, HIDDEN, key=getkey(), trainable_initial_state=True, **options)
    parameters, rest = partition_trainable(cell)
    parameters = jtu.tree_map(
        lambda leaf: leaf + 0.3 * jr.normal(getkey(), leaf.shape), parameters
    )
    return eqx.combine(parameters, rest)


def carry_of(cell, getkey):
    fresh = cell.initialize_state(jr.split(getkey(), B))
    return jtu.tree_map(lambda leaf: jr.normal(getkey(), leaf.shape), fresh)


def wide(tree):
    return jtu.tree_map(np.float64, eqx.filter(tree, eqx.is_array))


def lru_in_float64(cell, state, xs, is_first):
    """The recurrence of the paper, in complex numbers."""
    weights = wide(cell)
    half = HIDDEN
    decay = np.exp(-np.exp(weights.nu_log) + 1j * np.exp(weights.theta_log))
    into = weights.kernel[:, :half] + 1j * weights.kernel[:, half:]
    # Of a complex product the real part is wanted: the imaginary weights are negated.
    out = weights.output_kernel[:half] - 1j * weights.output_kernel[half:]
    fresh = weights.initial_state[0] + 1j * weights.initial_state[1]
    hidden = np.float64(state[0]) + 1j * np.float64(state[1])
    values = []
    for x, first in zip(np.float64(xs), np.asarray(is_first), strict=True):
        hidden = np.where(first[:, None], fresh, hidden)
        hidden = decay * hidden + np.exp(weights.gamma_log) * (x @ into)
        values.append((hidden @ out).real + x @ weights.skip_kernel)
    return np.stack(values), (hidden.real, hidden.imag)


def min_gru_in_float64(cell, state, xs, is_first):
    weights = wide(cell)
    hidden, values = np.float64(state), []
    for x, first in zip(np.float64(xs), np.asarray(is_first), strict=True):
        hidden = np.where(first[:, None], weights.initial_state, hidden)
        gate, candidate = np.split(x @ weights.kernel + weights.bias, 2, axis=-1)
        share = 1 / (1 + np.exp(-gate))
        hidden = (1 - share) * hidden + share * candidate
        values.append(hidden)
    return np.stack(values), hidden


@pytest.mark.parametrize(
    "kind, recurrence", [(LRU, lru_in_float64), (MinGRU, min_gru_in_float64)]
)
def test_the_equations_are_those_of_the_paper(kind, recurrence, getkey):
    cell, xs = trained(kind, getkey), jr.normal(getkey(), (T, B, IN))
    state, is_first = carry_of(cell, getkey), jr.bernoulli(getkey(), 0.2, (T, B))
    values, last = recurrence(cell, state, xs, is_first)
    result = jitted_unroll(cell, state, xs, is_first)
    np.testing.assert_allclose(result.output, values, rtol=1e-5, atol=1e-5)
    for ours, theirs in zip(
        jtu.tree_leaves(result.next_state), jtu.tree_leaves(last), strict=True
    ):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


# The two ways through time. A CPU goes step by step, so the other is put in its place.


@pytest.fixture(params=[_linear_scan.in_parallel, _linear_scan.by_step])
def way(request, monkeypatch):
    monkeypatch.setattr(_linear_scan, "_scanned", request.param)
    return request.param


def weighted(leaf):
    return jnp.vdot(jnp.cos(jnp.arange(leaf.size, dtype=jnp.float32)), leaf.ravel())


def with_gradient(method, cell, state, xs, is_first):
    def number(differentiated):
        cell, state, xs = eqx.combine(differentiated, rest)
        result = method(cell, state, xs, is_first)
        leaves = jtu.tree_leaves((result.output, result.next_state))
        return sum(map(weighted, leaves)), leaves

    everything = (cell, state, xs)
    differentiated, rest = eqx.partition(everything, eqx.is_inexact_array)
    gradient, leaves = jax.grad(number, has_aux=True)(differentiated)
    return leaves, gradient


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("length", [1, 2, 33])
def test_both_ways_are_the_steps_with_their_derivatives(kind, length, way, getkey):
    cell, xs = trained(kind, getkey), jr.normal(getkey(), (length, B, IN))
    is_first = jr.bernoulli(getkey(), 0.2, (length, B))
    is_first = is_first.at[:, 0].set(False).at[:, 1].set(True).at[0, 2].set(True)
    arguments = (cell, carry_of(cell, getkey), xs, is_first)
    # Fresh functions, so that nothing of the other way is found compiled.
    found, gradient = jax.jit(ft.partial(with_gradient, unroll))(*arguments)
    expected, by_steps = jax.jit(ft.partial(with_gradient, unroll_by_step))(*arguments)
    assert_close(found, expected, tolerance=1e-5)
    for one, other in zip(
        jtu.tree_leaves(gradient), jtu.tree_leaves(by_steps), strict=True
    ):
        atol = 1e-6 * max(1.0, float(jnp.max(jnp.abs(other))))
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=atol)


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_passes_a_reset_either_way(kind, way, getkey):
    cell, xs = trained(kind, getkey), jr.normal(getkey(), (7, B, IN))
    state = jtu.tree_map(lambda leaf: leaf.at[0].set(jnp.nan), carry_of(cell, getkey))
    is_first = jnp.zeros((7, B), bool).at[0, 0].set(True).at[4, 1].set(True)
    _, gradient = jax.jit(ft.partial(with_gradient, unroll))(cell, state, xs, is_first)
    assert all(np.all(np.isfinite(leaf)) for leaf in jtu.tree_leaves(gradient))
    # An episode that has gone wrong in the middle does not reach the next one.
    broken = jax.jit(ft.partial(unroll, cell))(
        state, xs.at[2, 1].set(jnp.nan), is_first
    ).output
    whole = jax.jit(ft.partial(unroll, cell))(state, xs, is_first).output
    spoilt = np.zeros((7, B), bool)
    spoilt[2:4, 1] = True
    np.testing.assert_array_equal(np.isnan(broken).all(-1), spoilt)
    np.testing.assert_array_equal(broken[~spoilt], whole[~spoilt])


@pytest.mark.parametrize("kind", KINDS)
def test_a_rollout_of_no_steps_keeps_the_carry(kind, way, getkey):
    cell = trained(kind, getkey)
    state = carry_of(cell, getkey)
    result = unroll(cell, state, jnp.zeros((0, B, IN)), jnp.zeros((0, B), bool))
    assert result.output.shape == (0, B, HIDDEN)
    assert tree_equal(result.next_state, state)


def test_loops_hold_no_matrix_products_and_parallel_scans_are_no_loops(getkey):
    cell, xs = trained(LRU, getkey), jr.normal(getkey(), (T, B, IN))
    state, is_first = carry_of(cell, getkey), jnp.zeros((T, B), bool)

    def loss(xs):
        return jnp.sum(unroll(cell, state, xs, is_first).output)

    def primitives(jaxpr):
        for equation in jaxpr.eqns:
            yield equation.primitive.name, equation
            for inner in jex.core.jaxprs_in_params(equation.params):
                yield from primitives(inner)

    found = list(primitives(jax.make_jaxpr(jax.grad(loss))(xs).jaxpr))
    loops = [equation for name, equation in found if name in ("scan", "while")]
    # One forwards and one backwards, for CPUs.
    assert len(loops) == 2
    for loop in loops:
        inside = [name for name, _ in primitives(loop.params["jaxpr"].jaxpr)]
        assert "mul" in inside and "dot_general" not in inside


def test_derivatives_in_forward_mode_are_refused(getkey):
    cell = MinGRU(IN, HIDDEN, key=getkey())
    state = cell.initialize_state(jr.split(getkey(), B))

    def output(xs):
        return unroll(cell, state, xs, jnp.zeros((2, B), bool)).output

    xs = jnp.ones((2, B, IN))
    with pytest.raises(TypeError, match="forward-mode"):
        jax.jvp(output, (xs,), (xs,))


# How a cell begins.


def test_the_ring_of_a_fresh_lru(getkey):
    cell = LRU(50, 2000, key=getkey(), r_min=0.6, r_max=0.9, max_phase=0.5)
    radius = np.exp(-np.exp(np.float64(cell.nu_log)))
    phase = np.exp(np.float64(cell.theta_log))
    assert 0.6 <= radius.min() < 0.61 and 0.89 < radius.max() <= 0.9
    assert 0 < phase.min() < 0.01 and 0.49 < phase.max() <= 0.5
    # Evenly over the ring's area, so the square of the radius is uniform.
    share = (radius**2 - 0.36) / (0.81 - 0.36)
    np.testing.assert_allclose(np.mean(share), 0.5, atol=0.03)
    np.testing.assert_allclose(np.var(share), 1 / 12, atol=0.01)
    gamma = np.exp(np.float64(cell.gamma_log))
    np.testing.assert_allclose(gamma, np.sqrt(1 - radius**2), rtol=1e-4)
    # With inputs of variance 1, the sum over all that came before has variance 1.
    weight = np.sum(np.float64(cell.kernel) ** 2) / 2000
    np.testing.assert_allclose(weight, 1, atol=0.03)


def test_rings_up_to_the_edge_have_finite_logarithms():
    for options in ({}, {"r_min": 1 - 1e-6}, {"r_max": 1e-6}):
        cell = LRU(1, 10_000, key=jr.key(0), out_features=1, **options)
        for leaf in (cell.nu_log, cell.theta_log, cell.gamma_log):
            assert np.all(np.isfinite(leaf))


@pytest.mark.parametrize(
    "options, message",
    [
        (
            {"r_min": 0.9, "r_max": 0.5},
            "a ring with 0 <= r_min.* got r_min=0.9",
        ),
        ({"r_max": 1.5}, "a ring with.*r_max=1.5"),
        ({"r_min": 1.0}, "a ring with.*r_min=1.0"),
        ({"r_max": 0.0}, "a ring with.*r_max=0.0"),
        ({"max_phase": 0.0}, "max_phase must be above 0"),
        ({"max_phase": 3 * math.pi}, "max_phase must be above 0 and at most 2 pi"),
        ({"out_features": 0}, "out_features must be at least 1, got 0"),
    ],
)
def test_rings_that_are_none_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        LRU(2, 2, key=jr.key(0), **options)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "sizes, name", [((0, 2), "in_features"), ((2, 0), "hidden_features")]
)
def test_sizes_of_zero_are_refused(kind, sizes, name):
    with pytest.raises(ValueError, match=f"{name} must be at least 1, got 0"):
        kind(*sizes, key=jr.key(0))


@pytest.mark.parametrize("kind, count", [(LRU, 6), (MinGRU, 2)])
def test_an_initial_state_trains_where_it_is_asked_for(kind, count, getkey):
    for trainable in (False, True):
        cell = kind(IN, HIDDEN, key=getkey(), trainable_initial_state=trainable)
        parameters, _ = partition_trainable(cell)
        states = jtu.tree_leaves(cell.initial_state)
        assert len(states) == (2 if kind is LRU else 1) * trainable
        assert len(jtu.tree_leaves(parameters)) == count + len(states)


@pytest.mark.parametrize("kind", KINDS)
def test_half_precision_keeps_a_float32_memory(kind, getkey):
    cell = kind(IN, HIDDEN, key=getkey())
    state = cell.initialize_state(jr.split(getkey(), B))
    x = jr.normal(getkey(), (B, IN)).astype(jnp.bfloat16)
    result = cell(state, x)
    assert result.output.dtype == jnp.bfloat16
    wide = cell(state, x.astype(jnp.float32))
    assert tree_equal(result.next_state, wide.next_state)
    coarse = jtu.tree_map(lambda leaf: leaf.astype(jnp.bfloat16), cell)
    at_once = unroll(coarse, state, x[None], jnp.ones((1, B), bool))
    for result in (coarse(state, x), at_once):
        dtypes = {leaf.dtype for leaf in jtu.tree_leaves(result.next_state)}
        assert dtypes == {jnp.dtype("float32")}


# A cell of one's own.


class _Undivided(LinearRecurrentModule):
    """Forgets that there are two coefficients."""

    in_features: int = eqx.field(static=True, default=2)

    def fresh_state(self, batch):
        return jnp.zeros((batch, 2))

    def coefficients(self, x):
        return x

    def read(self, state, x):
        return state


def test_coefficients_that_are_no_pair_are_named(getkey):
    cell, x = _Undivided(), jnp.ones((3, 2))
    state = cell.initialize_state(jr.split(getkey(), 3))
    message = r"coefficients to return \(decay, drive\), got .*\[3, 2\]"
    with pytest.raises(CompositionError, match=message):
        cell(state, x)
    with pytest.raises(CompositionError, match=message):
        cell.unroll(state, x[None], jnp.zeros((1, 3), bool))
