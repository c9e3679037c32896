"""A graph over time is its steps, one after the other."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import jax.tree_util as jtu
import numpy as np
import pytest

from graphs import random_graph, twelve_populations
from helpers import assert_close
from nnx_ppo_fn import GaussianNoise, PopulationGraphBuilder, Stateless, unroll
from nnx_ppo_fn.networks.unroll import unroll_by_step


BATCH = 3
KEYS = jr.split(jr.key(0), BATCH)


def inputs(sizes, length, seed=0):
    """Random inputs and episodes, with corner cases among these."""
    keys = jr.split(jr.key(seed), len(sizes) + 1)
    xs = {
        name: jr.normal(key, (length, BATCH, size))
        for key, (name, size) in zip(keys, sizes.items(), strict=False)
    }
    is_first = jr.bernoulli(keys[-1], 0.3, (length, BATCH))
    return xs, is_first.at[:, 0].set(False).at[:, 1].set(jnp.arange(length) == 0)


@eqx.filter_jit
def both_ways(graph, state, xs, is_first):
    """Two rollouts one after the other, at once and by steps, with gradients."""

    def loss(arrays, method):
        graph, state, xs = eqx.combine(arrays, rest)
        first = method(graph, state, xs, is_first)
        second = method(graph, first.next_state, xs, is_first[::-1])
        weights = jnp.cos(jnp.arange(is_first.size, dtype=jnp.float32))
        weights = weights.reshape(is_first.shape)
        total = sum(
            jnp.sum(weights[..., None] * leaf)
            for leaf in jtu.tree_leaves((first.output, second.output))
        )
        return total + jnp.sum(second.regularization_loss), second

    arrays, rest = eqx.partition((graph, state, xs), eqx.is_inexact_array)
    return [
        jax.grad(loss, has_aux=True)(arrays, method)
        for method in (unroll, unroll_by_step)
    ]


# In the last two, members of cycles are ahead of others.
@pytest.mark.parametrize("seed, length", [(1, 5), (4, 1), (18, 20), (33, 12)])
def test_random_graphs_at_once_and_by_steps(seed, length):
    graph, sizes = random_graph(seed)
    xs, is_first = inputs(sizes, length, seed)
    state = graph.initialize_state(KEYS)
    (fast_gradient, fast), (gradient, by_steps) = both_ways(graph, state, xs, is_first)
    assert_close(fast, by_steps)
    assert_close(fast_gradient, gradient, tolerance=1e-4)
    assert any(np.any(leaf != 0) for leaf in jtu.tree_leaves(gradient))


def accumulators(*delays):
    """Two populations that keep adding up, and one output that is both."""
    builder = (
        PopulationGraphBuilder(key=jr.key(0))
        .add_input("a", 1, input_from="x")
        .add_input("b", 1, input_from="x")
        .add_output("sum", 1)
    )
    there, back = delays
    return (
        builder.connect("a", "b", delay=there, transform=Stateless(half))
        .connect("b", "a", delay=back, transform=Stateless(half))
        .connect("a", "sum", transform=Stateless(plain))
        .connect("b", "sum", delay=1, transform=Stateless(plain))
        .finalize()
    )


def half(x):
    return 0.5 * x


def plain(x):
    return x


@pytest.mark.parametrize(
    "there, back, block", [(0, 3, 3), (2, 3, 5), (1, 1, 2), (0, 1, 1)]
)
def test_a_cycle_of_numbers_written_out(there, back, block):
    graph = accumulators(there, back)
    cycle = graph.components[0]
    assert set(cycle.members) == {"a", "b"} and cycle.block == block
    xs = np.arange(1.0, 9.0, dtype=np.float32)
    starts = 5
    a, b, expected = {}, {}, []
    for t, x in enumerate(xs):
        begin = starts if t >= starts else 0

        def past(values, step, begin=begin):
            return values[step] if step >= begin else 0.0

        # A population without delay before it comes first.
        if there == 0:
            a[t] = x + 0.5 * past(b, t - back)
            b[t] = x + 0.5 * a[t]
        else:
            a[t] = x + 0.5 * past(b, t - back)
            b[t] = x + 0.5 * past(a, t - there)
        expected.append(a[t] + past(b, t - 1))
    is_first = jnp.arange(8)[:, None] == jnp.asarray([starts])[None]
    state = graph.initialize_state(KEYS[:1])
    x = {"x": jnp.asarray(xs)[:, None, None]}
    for method in (unroll, unroll_by_step):
        result = method(graph, state, x, is_first)
        np.testing.assert_allclose(result.output["sum"][:, 0, 0], expected, rtol=1e-6)


@pytest.mark.parametrize("length", [0, 1, 2, 4, 7, 8, 12, 13, 14])
def test_members_that_are_ahead_at_every_length(length):
    graph = accumulators(2, 3)
    (members, block, ahead), *_ = graph.components
    assert (members, block, ahead) == (("a", "b"), 5, (0, 2))
    xs, is_first = inputs({"x": 1}, length)
    state = graph.initialize_state(KEYS)
    fast = unroll(graph, state, xs, is_first)
    by_steps = unroll_by_step(graph, state, xs, is_first)
    assert fast.output["sum"].shape == (length, BATCH, 1)
    assert_close(fast, by_steps)


def loops(jaxpr):
    """The lengths of all loops in a jaxpr, inner ones in brackets."""
    found = []
    for equation in jaxpr.eqns:
        inner = []
        for parameter in jtu.tree_leaves(
            list(equation.params.values()), is_leaf=lambda one: hasattr(one, "eqns")
        ):
            jaxpr_inside = getattr(parameter, "jaxpr", parameter)
            if hasattr(jaxpr_inside, "eqns"):
                inner += loops(jaxpr_inside)
        if equation.primitive.name in ("scan", "while"):
            found.append((equation.params.get("length"), inner))
        else:
            found += inner
    return found


def loops_of(graph, sizes, length, method=unroll):
    xs, is_first = inputs(sizes, length)
    state = graph.initialize_state(KEYS)
    made = eqx.filter_make_jaxpr(method)(graph, state, xs, is_first)[0]
    return loops(made.jaxpr)


def chain(*, feedback=None):
    builder = (
        PopulationGraphBuilder(key=jr.key(0))
        .add_input("a", 2, input_from="x", activation=jnp.tanh)
        .add_population("b", 2, activation=jnp.tanh)
        .add_output("c", 2)
        .connect("a", "b", delay=2)
        .connect("a", "b")
        .connect("b", "c", delay=1)
        .connect("a", "c", delay=5)
    )
    if feedback is not None:
        builder.connect("b", "a", delay=feedback)
    return builder.finalize()


def test_only_cycles_leave_loops():
    sizes = {"x": 2}
    assert loops_of(chain(), sizes, 12) == []
    assert loops_of(chain(), sizes, 12, unroll_by_step) == [(12, [])]
    # From a to b without delay: blocks as long as the way back takes.
    assert loops_of(chain(feedback=3), sizes, 12) == [(4, [])]
    # The last two of 14 steps have no loop to themselves.
    assert loops_of(chain(feedback=3), sizes, 14) == [(4, [])]
    assert loops_of(chain(feedback=1), sizes, 12) == [(12, [])]
    # All of it fits into one block.
    assert loops_of(chain(feedback=12), sizes, 12) == []


def test_noise_outside_of_cycles_leaves_its_own_chain_of_keys():
    graph = (
        PopulationGraphBuilder(key=jr.key(0))
        .add_input("a", 2, input_from="x", activation=GaussianNoise(0.1))
        .add_output("b", 2)
        .connect("a", "b", delay=1)
        .finalize()
    )
    assert loops_of(graph, {"x": 2}, 6) == [(6, [])]


def test_members_that_are_ahead_begin_before_the_loop_and_others_end_after_it():
    # Of 14 steps, three blocks of four; two and two more are left at the ends.
    assert loops_of(accumulators(2, 2), {"x": 1}, 14) == [(3, [])]
    assert loops_of(accumulators(2, 2), {"x": 1}, 9) == []


def test_the_loops_of_twelve_populations():
    """Two cycles, and what draws or remembers outside of them: nothing."""
    graph = twelve_populations(jr.key(0))
    found = {frozenset(one.members): one.block for one in graph.components if one.block}
    assert found == {
        frozenset({"thalamus", "V1", "V2", "PFC", "BG"}): 2,
        frozenset({"M1", "cerebellum"}): 4,
    }
    lengths = loops_of(graph, {"image": 2, "touch": 2}, 32)
    # Within the blocks of the first cycle, the noise of PFC and the bottleneck on the
    # way to it go two steps each; once more for the last two steps of all. PFC->M1, an
    # LSTM, is outside of both cycles. In the blocks of the second, M1's gate goes four.
    assert lengths == [
        *[(15, [(2, []), (2, [])]), (2, []), (2, [])],
        (32, []),
        *[(7, [(4, [])]), (4, [])],
    ]
