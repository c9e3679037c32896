"""Counting matrix products, and how many of them a replay puts into loops."""

import collections
import functools as ft

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import pytest

from benchmarks.networks import MEMORY, NETWORKS
from benchmarks.products import flops_of, products
from benchmarks.ring import Ring
from nnx_ppo_fn import (
    initial_rollout_state,
    partition_trainable,
    ppo_loss,
    PPOConfig,
    unroll_env,
)


def of(function, *shapes):
    arguments = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in shapes]
    return jax.make_jaxpr(function)(*arguments)


def test_a_product_of_matrices():
    # Each of 3 x 5 numbers is a sum of 4 products.
    assert flops_of(products(of(jnp.matmul, (3, 4), (4, 5)))) == 2 * 3 * 4 * 5


def test_a_batch_of_products_with_several_summed_axes():
    def contract(a, b):
        return jnp.einsum("bijk,bkjl->bil", a, b)

    assert flops_of(
        products(of(contract, (2, 3, 4, 5), (2, 5, 4, 6)))
    ) == 2 * 2 * 3 * 6 * (4 * 5)


def test_a_convolution():
    def convolve(image, kernel):
        return jax.lax.conv(image, kernel, (1, 1), "VALID")

    # 7 filters at 6 x 6 places, each of 3 channels, 3 x 3.
    counted = flops_of(products(of(convolve, (2, 3, 8, 8), (7, 3, 3, 3))))
    assert counted == 2 * (2 * 7 * 6 * 6) * (3 * 3 * 3)


def test_loops_count_as_often_as_they_run():
    def repeat(x, w):
        x, _ = jax.lax.scan(lambda x, _: (x @ w, None), x, length=6)
        return jax.lax.while_loop(lambda x: jnp.all(x > 0), lambda x: x @ w, x)

    jaxpr = of(repeat, (3, 4), (4, 4))
    assert flops_of(products(jaxpr, trips=10)) == (6 + 10) * 2 * 3 * 4 * 4
    assert [one.loops for one in products(jaxpr)] == [("scan",), ("while",)]


def test_every_product_is_found_with_its_shapes_and_runs():
    def layers(x, w, v):
        def step(h, x):
            h = jnp.tanh(x + h @ v)
            return h, h

        return jax.lax.scan(step, jnp.zeros((3, 5)), x @ w)[1].sum()

    def gradient(x, w, v):
        return jax.grad(layers, argnums=(1, 2))(x, w, v)

    counted = collections.Counter()
    for one in products(of(gradient, (7, 3, 4), (4, 5), (5, 5))):
        shapes = tuple(operand.shape for operand in one.operation.operands)
        numbers = dict(one.operation.parameters)["dimension_numbers"]
        assert all(operand.dtype == jnp.float32 for operand in one.operation.operands)
        counted[shapes, numbers[0], one.operation.result.shape, one.loops] += one.runs
    # Before the loop, of all 7 steps at once; in it, once per step.
    forward = {
        (((7, 3, 4), (4, 5)), ((2,), (0,)), (7, 3, 5), ()): 1,
        (((3, 5), (5, 5)), ((1,), (0,)), (3, 5), ("scan",)): 7,
    }
    # The gradients of the state and of both kernels; `x` needs none.
    backward = {
        (((3, 5), (5, 5)), ((1,), (1,)), (3, 5), ("scan",)): 7,
        (((3, 5), (3, 5)), ((0,), (0,)), (5, 5), ("scan",)): 7,
        (((7, 3, 5), (7, 3, 4)), ((0, 1), (0, 1)), (5, 4), ()): 1,
    }
    assert counted == forward | backward


def test_what_nobody_uses_does_not_count():
    def leave_out(x, w):
        unused, used = jax.jit(lambda: (x @ w @ w, x @ w))()
        del unused
        return used

    def in_a_loop(x, w):
        return jax.lax.while_loop(lambda x: x[0, 0] < 1, lambda x: leave_out(x, w), x)

    for function in (leave_out, in_a_loop):
        assert flops_of(products(of(function, (3, 4), (4, 4)))) == 2 * 3 * 4 * 4


def test_the_cheapest_branch_counts():
    def branch(x, w):
        return jax.lax.cond(jnp.all(x > 0), lambda: x @ w @ w, lambda: x @ w)

    assert flops_of(products(of(branch, (3, 4), (4, 4)))) == 2 * 3 * 4 * 4


@ft.cache
def products_of_the_replay(name, length, batch=2):
    """Products in the gradient of the loss over a whole rollout."""
    env, network = Ring(), NETWORKS[name](jr.key(0))
    parameters, rest = partition_trainable(network)
    config = PPOConfig(n_envs=batch, n_minibatches=1, rollout_length=length)

    def collect(key):
        state = initial_rollout_state(env, network, jr.split(key, batch))
        return unroll_env(env, network, state, length)[1]

    def loss(parameters, rollout):
        return ppo_loss(eqx.combine(parameters, rest), rollout, config)[0]

    rollout = jax.eval_shape(collect, jr.key(1))
    return products(jax.make_jaxpr(jax.grad(loss))(parameters, rollout))


def looped(found):
    return [one for one in found if one.loops]


WITHOUT_RECURRENCE = ("mlp", "variational", "noisy")


@pytest.mark.parametrize("name", WITHOUT_RECURRENCE)
def test_no_product_of_a_replay_is_in_a_loop(name):
    assert looped(products_of_the_replay(name, 7)) == []


@pytest.mark.parametrize("name", [*WITHOUT_RECURRENCE, "lstm", "graph"])
def test_nothing_is_unrolled_in_python(name):
    assert len(products_of_the_replay(name, 7)) == len(products_of_the_replay(name, 11))


@pytest.mark.parametrize("name, gates", [("lstm", 4), ("gru", 3)])
def test_a_recurrent_layer_loops_over_its_recurrent_products_alone(name, gates):
    length, batch = 7, 2
    in_loops = looped(products_of_the_replay(name, length, batch))
    product = 2 * length * batch * MEMORY * gates * MEMORY
    # One forward, one backward of the carry; the kernel's gradient is behind the loop.
    assert {one.loops for one in in_loops} == {("scan",)}
    assert sum(one.flops for one in in_loops) == 2 * product


def test_a_graph_loops_over_the_products_of_its_cycle_alone():
    length, batch = 7, 2
    in_loops = looped(products_of_the_replay("graph", length, batch))
    # Three connections of the cycle, forward and backward. Two of them lead to the same
    # population, and two come from the same one, which makes one product of both.
    assert {one.loops for one in in_loops} == {("scan",)}
    of_one = 2 * length * batch * MEMORY * MEMORY
    assert [one.flops for one in in_loops] == [of_one, 2 * of_one] * 2
