import inspect

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from scipy import stats

from nnx_ppo_fn._keys import advance_keys, derive, EpisodeKeys, Held, normals


def data(keys):
    return np.asarray(jr.key_data(keys))


def test_a_child_is_no_child_of_split_or_fold_in(getkey):
    key = getkey()
    children = np.stack([data(derive(key, name)) for name in ("draw", "next link")])
    split = data(jr.split(key, 1000))
    folded = data(jax.vmap(lambda i: jr.fold_in(key, i))(jnp.arange(1000)))
    np.testing.assert_array_equal(split, folded)  # the reason for names
    for child in children:
        assert not np.any(np.all(split == child, axis=-1))
    assert not np.array_equal(*children)


@settings(max_examples=25, deadline=None)
@given(st.text(min_size=1), st.text(min_size=1))
def test_children_are_told_apart_by_their_names(one, other):
    key = jr.key(3)
    same = np.array_equal(data(derive(key, one)), data(derive(key, other)))
    assert same == (one == other)


def test_derive_works_on_keys_of_any_shape(getkey):
    keys = jr.split(getkey(), (3, 2))
    derived = derive(keys, "name")
    assert derived.shape == (3, 2)
    for index in np.ndindex(3, 2):
        np.testing.assert_array_equal(
            data(derived[index]), data(derive(keys[index], "name"))
        )


def test_keys_of_the_old_kind_are_refused():
    with pytest.raises(TypeError, match=r"typed keys, jax.random.key.*uint32\[2\]"):
        inspect.unwrap(derive)(jr.PRNGKey(0), "a name")


def test_a_chain_never_repeats_a_key(getkey):
    chain = jr.split(getkey(), 4)

    def step(chain, _):
        next_chain, draw = advance_keys(chain)
        return next_chain, (chain, draw)

    _, (chains, draws) = jax.lax.scan(step, chain, None, length=50)
    seen = np.concatenate([data(chains).reshape(-1, 2), data(draws).reshape(-1, 2)])
    assert len(np.unique(seen, axis=0)) == 2 * 50 * 4


def test_normals_depend_on_each_key_alone(getkey):
    keys = jr.split(getkey(), 5)
    numbers = normals(keys, 3)
    order = jnp.array([3, 0, 3, 1])
    np.testing.assert_array_equal(normals(keys[order], 3), numbers[order])
    np.testing.assert_array_equal(numbers[2], jr.normal(keys[2], (3,)))


def test_normals_along_a_chain_are_standard_normal(getkey):
    def step(chain, _):
        chain, draw = advance_keys(chain)
        return chain, normals(draw, 8)

    _, numbers = jax.lax.scan(step, jr.split(getkey(), 16), None, length=64)
    numbers = np.asarray(numbers, np.float64)
    assert stats.kstest(numbers.ravel(), "norm").pvalue > 1e-3
    # Neither steps, nor environments, nor components are correlated: each of the
    # coefficients below has a standard deviation of about 1 / sqrt(8192) = 0.011.
    for axis in range(3):
        ahead, behind = np.delete(numbers, 0, axis), np.delete(numbers, -1, axis)
        assert abs(np.corrcoef(ahead.ravel(), behind.ravel())[0, 1]) < 0.05


def test_an_episode_holds_one_key_and_the_chain_goes_on(getkey):
    chain = jr.split(getkey(), 3)
    first = EpisodeKeys.of(chain)
    second = EpisodeKeys.of(first.chain)
    assert isinstance(first.held, Held)
    keys = np.concatenate(
        [
            data(k)
            for k in (
                chain,
                first.chain,
                first.held.key,
                second.chain,
                second.held.key,
            )
        ]
    )
    assert len(np.unique(keys, axis=0)) == 15
