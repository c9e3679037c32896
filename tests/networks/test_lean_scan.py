"""The scan that stores every value once, against JAX's own."""

import jax
import jax.numpy as jnp
import jax.random as jr
import jax.tree_util as jtu
import numpy as np
import pytest

from nnx_ppo_fn.networks._lean_scan import lean_scan


BATCH, SIZE, LENGTH = 3, 4, 5
OTHER = jr.normal(jr.key(2), (SIZE, SIZE))


def grown(h, x):
    return jnp.tanh(h + x["number"])


def same_twice(h, x):
    return jnp.sin(grown(h, x)), jnp.sin(grown(h, x))


def views_of_one(h, x):
    new = grown(h, x)
    return new[None], new.reshape(-1), jnp.sum(new[:, None], axis=1), new[..., None]


def an_input_and_its_views(h, x):
    wide = jnp.broadcast_to(x["flag"][:, None], h.shape)
    return x["number"], x["flag"], wide, wide[None]


def the_same_in_every_step(h, x):
    return OTHER, jnp.zeros((BATCH, 2)), jnp.float32(3), OTHER[None], jnp.int32(3)


def the_carry_before_and_after(h, x):
    return h, grown(h, x)


def sums_of_several(h, x):
    return jnp.sum(h, axis=1), jnp.sum(h, axis=0)


def keys_and_draws(h, x):
    key = jr.fold_in(jr.key(3), x["count"])
    return key, jr.normal(key, (2,)), jr.normal(key, (2,))


def numbers_of_other_types(h, x):
    return (
        jnp.float32(1),
        jnp.int32(1),
        jnp.bool_(True),
        jnp.float32(-0.0),
        jnp.zeros(()),
    )


def nearly_equal_numbers(h, x):
    return grown(h, x) * 0.00012345, grown(h, x) * 0.000123453


def numbers_of_python(h, x):
    return 3.0, 2, True, (x["number"], 3.0)


def bits_by_two_settings(h, x):
    key = jr.fold_in(jr.key(3), x["count"])
    with jax.threefry_partitionable(True):
        bits = jr.bits(key, (2, 5))
    with jax.threefry_partitionable(False):
        return bits, jr.bits(key, (2, 5))


def nothing(h, x):
    return ()


OUTPUTS = {
    same_twice: 1,
    views_of_one: 1,
    an_input_and_its_views: 0,
    the_same_in_every_step: 0,
    the_carry_before_and_after: 2,
    sums_of_several: 2,
    keys_and_draws: 2,
    numbers_of_other_types: 0,
    nearly_equal_numbers: 2,
    numbers_of_python: 0,
    bits_by_two_settings: 2,
    nothing: 0,
}
"""How many arrays have to be stored."""


def inputs(length):
    keys = jr.split(jr.key(1))
    return {
        "number": jr.normal(keys[0], (length, BATCH, SIZE)),
        "flag": jr.bernoulli(keys[1], 0.5, (length, BATCH)),
        "count": jnp.arange(length),
    }


def stepping(outputs):
    def step(h, x):
        return grown(h, x), outputs(h, x)

    return step


def unkeyed(tree):
    def numbers(leaf):
        is_key = jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
        return jr.key_data(leaf) if is_key else leaf

    return jtu.tree_map(numbers, tree)


@pytest.mark.parametrize("outputs", OUTPUTS)
@pytest.mark.parametrize(
    "length, reverse", [(LENGTH, False), (LENGTH, True), (0, True)]
)
def test_results_are_those_of_jax(outputs, length, reverse):
    h, xs = jr.normal(jr.key(0), (BATCH, SIZE)), inputs(length)

    def ours(h, xs):
        last, said = lean_scan(stepping(outputs), h, xs, reverse=reverse)
        return last, tuple(said.stacked(part) for part in range(parts))

    expected = jax.lax.scan(stepping(outputs), h, xs, reverse=reverse)
    parts = len(expected[1])
    got = jax.jit(ours)(h, xs)
    assert jtu.tree_structure(got) == jtu.tree_structure(expected)
    for one, other in zip(
        jtu.tree_leaves(unkeyed(got)), jtu.tree_leaves(unkeyed(expected)), strict=True
    ):
        assert (one.shape, one.dtype) == (other.shape, other.dtype)
        np.testing.assert_allclose(one, other, rtol=1e-6)
        is_negative, should_be = (np.signbit(np.float64(x)) for x in (one, other))
        np.testing.assert_array_equal(is_negative, should_be)


@pytest.mark.parametrize("outputs, expected", OUTPUTS.items())
def test_every_value_is_stored_once(outputs, expected):
    def run(h, xs):
        return lean_scan(stepping(outputs), h, xs)[1].of_steps

    jaxpr = jax.make_jaxpr(run)(jnp.zeros((BATCH, SIZE)), inputs(LENGTH)).jaxpr
    (loop,) = (one for one in jaxpr.eqns if one.primitive.name == "scan")
    assert len(loop.outvars) - loop.params["num_carry"] == expected


@pytest.mark.parametrize("options", [{"precision": 2}, {"suppress": True}])
def test_how_numpy_prints_numbers_is_of_no_account(options):
    def step(h, x):
        return h, (jnp.maximum(h, 1e-9), jnp.maximum(h, 0.0), h * 0.991, h * 0.994)

    with np.printoptions(**options):
        _, said = lean_scan(step, jnp.zeros(2), jnp.zeros(3))
    assert len(said.of_steps) == 4


def test_what_prints_is_not_merged(capfd):
    def step(h, x):
        jax.debug.print("step {}", x)
        jax.debug.print("step {}", x)
        return h, ()

    lean_scan(step, jnp.zeros(2), jnp.arange(3))
    jax.effects_barrier()
    assert capfd.readouterr().out.count("step") == 6
