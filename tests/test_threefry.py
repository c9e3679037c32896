"""Threefry written out, against JAX's own bit for bit."""

from zlib import crc32

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from nnx_ppo_fn._keys import advance_keys, derive
from nnx_ppo_fn._threefry import _block, _WRITTEN_OUT, written_out


WORDS = st.integers(0, 2**32 - 1)


@settings(max_examples=50, deadline=None)
@given(WORDS, WORDS, WORDS)
def test_children_are_those_of_jax(left, right, data):
    key = jr.wrap_key_data(jnp.array([left, right], jnp.uint32))
    got = written_out(lambda key: jr.fold_in(key, np.uint32(data)), key)
    assert got.dtype == key.dtype
    expected = jr.fold_in(key, np.uint32(data))
    np.testing.assert_array_equal(jr.key_data(got), jr.key_data(expected))


def test_the_known_answer_of_its_authors():
    """Random123's test vector `threefry2x32 20`, of digits of pi."""
    key = jr.wrap_key_data(jnp.array([0x13198A2E, 0x03707344], jnp.uint32))
    count = jnp.array([0x243F6A88, 0x85A308D3], jnp.uint32)
    np.testing.assert_array_equal(
        _block(jr.key_data(key), count), np.array([0xC4923A9C, 0x483DF7A0], np.uint32)
    )


@pytest.mark.parametrize("impl", ["threefry2x32", "rbg", "unsafe_rbg"])
@pytest.mark.parametrize("shape", [(), (3,), (2, 3)])
def test_every_generator_keeps_its_kind_and_its_children(impl, shape):
    keys = jr.split(jr.key(5, impl=impl), shape) if shape else jr.key(5, impl=impl)
    got = derive(keys, "a name")
    assert got.dtype == keys.dtype and got.shape == shape
    tag = np.uint32(crc32(b"a name") | 0x8000_0000)
    for place in np.ndindex(shape):
        # Under `vmap`, as in `derive`: unsafe_rbg has other children without it.
        expected = jax.vmap(jr.fold_in, (0, None))(keys[place][None], tag)[0]
        np.testing.assert_array_equal(jr.key_data(got[place]), jr.key_data(expected))


def test_a_link_of_a_chain_compiles_without_a_loop():
    chain = jr.split(jr.key(0), 4)
    text = jax.jit(advance_keys).lower(chain).compile().as_text()
    assert " while(" not in text
    # JAX's own has one on a CPU, or this would hold of anything.
    own = jax.jit(jax.vmap(lambda key: jr.fold_in(key, 1))).lower(chain).compile()
    assert " while(" in own.as_text() or jax.default_backend() != "cpu"


def test_it_stands_for_all_of_jaxs_functions():
    """Numbers, children and seeds of the keys that are folded are JAX's as well."""
    ours, theirs = jr.key(7, impl=_WRITTEN_OUT), jr.key(7)
    np.testing.assert_array_equal(jr.key_data(ours), jr.key_data(theirs))
    np.testing.assert_array_equal(jr.normal(ours, (5,)), jr.normal(theirs, (5,)))
    np.testing.assert_array_equal(
        jr.key_data(jr.split(ours, 3)), jr.key_data(jr.split(theirs, 3))
    )
