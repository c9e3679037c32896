"""The walk through a jaxpr: what it must catch, and what it must let pass."""

import jax
import jax.numpy as jnp
import jax.random as jr
import pytest

from nnx_ppo_fn._keys import advance_keys, derive, EpisodeKeys, normals
from nnx_ppo_fn.testing._names import KeyBook, KeyMisuse
from nnx_ppo_fn.testing._provenance import name_keys, Walk
from nnx_ppo_fn.testing._values import Unknown


BATCH = 3
NUMBERS = jnp.ones((BATCH, 2))


def follow(function, *shape):
    """Walks through `function(keys, numbers)`; returns the names of its results."""
    keys = jr.split(jr.key(0), (BATCH, *shape))
    jaxpr = jax.make_jaxpr(function)(keys, NUMBERS)
    names = name_keys(keys.shape, "the key", born=True)
    return Walk(KeyBook()).closed(jaxpr, [names, Unknown()])


def draw(key):
    return jr.normal(key, (2,))


def split_halves(keys, x):
    halves = jax.vmap(jr.split)(keys)
    return jax.vmap(draw)(halves[:, 0]), jax.vmap(draw)(halves[:, 1])


def dictionaries(keys, x):
    carry = dict(zip(("b", "a"), advance_keys(keys), strict=True))
    carry = jax.tree.map(lambda leaf: leaf, carry)
    return normals(carry["a"], 2), normals(carry["b"], 2)


def where_on_keys(keys, x):
    left, right = advance_keys(keys)
    return normals(jnp.where(x[:, 0] > 0, left, right), 2)


def swapped_by_where(keys, x):
    left, right = advance_keys(keys)
    flag = x[:, 0] > 0
    one, other = jnp.where(flag, left, right), jnp.where(flag, right, left)
    return normals(one, 2), normals(other, 2)


def inner_scan(keys, x):
    def step(chain, _):
        chain, key = advance_keys(chain)
        return chain, (normals(key, 2), key)

    chain, (noise, _) = jax.lax.scan(step, keys, None, length=4)
    return noise, normals(chain, 2)


def scan_over_keys(keys, x):
    def step(total, key):
        return total + draw(key), None

    subkeys = jax.vmap(lambda key: jr.split(key, 4))(keys)
    return jax.lax.scan(step, jnp.zeros(2), subkeys[0], reverse=True)[0]


def long_scan(keys, x):
    def step(chain, _):
        chain, key = advance_keys(chain)
        return chain, normals(key, 2)

    chain, noise = jax.lax.scan(step, keys, None, length=1000)
    return noise, normals(chain, 2)


@jax.custom_vjp
def noisy(key, x):
    return x + draw(key)


noisy.defvjp(lambda key, x: (noisy(key, x), None), lambda _, slope: (None, slope))


def custom_derivative(keys, x):
    chain, key = advance_keys(keys)
    return chain, jax.vmap(noisy)(key, x)


def gradient_through_checkpoint(keys, x):
    @jax.checkpoint
    def loss(x):
        return jnp.sum(x * normals(keys, 2))

    return loss(x)


def held_dropout(keys, x):
    state = EpisodeKeys.of(keys)
    return normals(state.held.key, 2), EpisodeKeys.of(state.chain)


def ensemble(keys, x):
    subkeys = jax.vmap(lambda key: jr.split(key, 4))(keys)
    return jax.vmap(jax.vmap(draw))(subkeys)


def same_child_twice(keys, x):
    # Deriving a child again is looking at it again; it is drawn from once.
    again = derive(keys, "child")
    return derive(keys, "child"), normals(again, 2)


def rejection_loop(keys, x):
    def body(carry):
        key, _ = carry
        key, subkey = jr.split(key)
        return key, draw(subkey)[0]

    def one(key):
        return jax.lax.while_loop(lambda carry: carry[1] < 0, body, (key, -1.0))

    key, _ = jax.vmap(one)(keys)
    return normals(key, 2)


def library_distributions(keys, x):
    one, two = advance_keys(keys)
    return jax.vmap(lambda key: jr.poisson(key, 3.0))(one), jax.vmap(
        lambda key: jr.gamma(key, 2.0)
    )(two)


def binomial(keys, x):
    # Two ways to draw, of which each row keeps one.
    return jax.vmap(lambda key: jr.binomial(key, 5.0, 0.4, (3,)))(keys)


def unbatched_cond(keys, x):
    return jax.lax.cond(
        jnp.sum(x) > 0, lambda: normals(keys, 2), lambda: 2 * normals(keys, 2)
    )


def gather_and_flip(keys, x):
    first, second = advance_keys(keys)
    both = jnp.concatenate([first[::-1], second[jnp.array([2, 0, 1])]])
    return jax.vmap(draw)(both.reshape(2, BATCH).T.reshape(-1))


def bits_and_back(keys, x):
    return normals(jr.wrap_key_data(jr.key_data(keys)), 2)


@pytest.mark.parametrize(
    "function",
    [
        split_halves,
        dictionaries,
        where_on_keys,
        swapped_by_where,
        inner_scan,
        scan_over_keys,
        long_scan,
        custom_derivative,
        gradient_through_checkpoint,
        held_dropout,
        ensemble,
        same_child_twice,
        rejection_loop,
        library_distributions,
        binomial,
        unbatched_cond,
        gather_and_flip,
        bits_and_back,
    ],
)
def test_no_false_alarm(function):
    follow(function)


def test_ensembles_in_the_carry():
    follow(lambda keys, x: jax.vmap(jax.vmap(draw))(keys), 4)


def drawn_twice(keys, x):
    return normals(keys, 2), normals(keys, 3)


def through_reshape_and_concatenate(keys, x):
    chain, key = advance_keys(keys)
    both = jnp.concatenate([chain, key]).reshape(2, BATCH)
    return normals(both[1], 2), normals(key, 2)


def one_for_all(keys, x):
    return normals(jnp.broadcast_to(keys[:1], keys.shape), 2)


def child_twice(keys, x):
    return normals(derive(keys, "a"), 2), normals(derive(keys, "a"), 2)


def fold_is_split(keys, x):
    # fold_in(key, 1) is split(key)[1].
    folded = jax.vmap(lambda key: jr.fold_in(key, 1))(keys)
    halves = jax.vmap(jr.split)(keys)
    return normals(folded, 2), normals(halves[:, 1], 2)


def split_is_split(keys, x):
    # split(key, 2) is split(key, 3)[:2].
    two = jax.vmap(jr.split)(keys)
    three = jax.vmap(lambda key: jr.split(key, 3))(keys)
    return normals(two[:, 0], 2), normals(three[:, 0], 2)


def scan_without_advance(keys, x):
    return jax.lax.scan(
        lambda chain, _: (chain, normals(chain, 2)), keys, None, length=2
    )


def loop_without_advance(keys, x):
    def body(carry):
        step, total = carry
        return step + 1, total + normals(keys, 2)

    return jax.lax.while_loop(
        lambda carry: jnp.sum(carry[1]) < 9, body, (0, jnp.zeros((BATCH, 2)))
    )


def where_and_direct(keys, x):
    left, right = advance_keys(keys)
    mixed = jnp.where(x[:, 0] > 0, left, right)
    return normals(mixed, 2), normals(left, 2)


def binomial_twice(keys, x):
    def one(key):
        return [jr.binomial(key, 5.0, 0.4, (3,)) for _ in range(2)]

    return jax.vmap(one)(keys)


def normal_twice_in_a_line(keys, x):
    return [jax.vmap(lambda key: jr.normal(key, (2,)))(keys) for _ in range(2)]


def two_distributions_in_a_line(keys, x):
    return jax.vmap(lambda key: jr.normal(key) + jr.uniform(key))(keys)


def in_jit(keys, x):
    return jax.jit(lambda key: normals(key, 2))(keys), jax.jit(
        lambda key: normals(key, 3)
    )(keys)


@pytest.mark.parametrize(
    "function",
    [
        drawn_twice,
        through_reshape_and_concatenate,
        one_for_all,
        child_twice,
        fold_is_split,
        split_is_split,
        scan_without_advance,
        loop_without_advance,
        where_and_direct,
        binomial_twice,
        normal_twice_in_a_line,
        two_distributions_in_a_line,
        in_jit,
    ],
)
def test_second_draw(function):
    with pytest.raises(KeyMisuse, match="draws twice"):
        follow(function)


def draw_then_split(keys, x):
    return normals(keys, 2), jax.vmap(jr.split)(keys)


def fold_then_draw(keys, x):
    return advance_keys(keys), normals(keys, 2)


def draw_then_split_in_scan(keys, x):
    def step(chain, _):
        return advance_keys(chain)[0], normals(chain, 2)

    return jax.lax.scan(step, keys, None, length=2)


@pytest.mark.parametrize(
    "function", [draw_then_split, fold_then_draw, draw_then_split_in_scan]
)
def test_draw_and_derive(function):
    with pytest.raises(KeyMisuse, match="also splits it or folds into it"):
        follow(function)


CLOSED_OVER = jr.key(7)


@pytest.mark.parametrize(
    "function",
    [
        lambda keys, x: jr.normal(CLOSED_OVER, x.shape),
        lambda keys, x: normals(derive(jnp.stack([CLOSED_OVER] * 3), "a"), 2),
        lambda keys, x: jr.normal(jr.key(0), x.shape),
        lambda keys, x: jr.normal(jr.key(jnp.sum(x).astype(int)), x.shape),
        lambda keys, x: jr.normal(jnp.array([0, 1], jnp.uint32), x.shape),
        lambda keys, x: normals(jnp.where(x[:, 0] > 0, keys, CLOSED_OVER), 2),
    ],
    ids=["closed over", "derived", "seed", "computed seed", "raw bits", "mixed"],
)
def test_key_from_elsewhere(function):
    with pytest.raises(KeyMisuse, match="does not descend from the carry"):
        follow(function)


def test_names_the_lines():
    with pytest.raises(KeyMisuse) as caught:
        follow(drawn_twice)
    assert "test_provenance.py" in str(caught.value)
    assert "drawn_twice" in str(caught.value)


def test_both_branches_of_a_batched_cond():
    def both(keys, x):
        def one(key, flag):
            return jax.lax.cond(flag > 0, jr.normal, jr.uniform, key)

        return jax.vmap(one)(keys, x[:, 0])

    with pytest.raises(KeyMisuse) as caught:
        follow(both)
    assert "draw before the cond" in caught.value.cause


def test_equal_children_are_one_name():
    def children(keys, x):
        halves = jax.vmap(jr.split)(keys)
        folded = jax.vmap(jr.fold_in, in_axes=(0, None))(keys, 1)
        return halves[:, 1], folded, halves[:, 0]

    second, folded, first = follow(children)
    assert list(second) == list(folded)
    assert not set(second) & set(first)
    # The walk says of names what JAX says of bits.
    second, folded, first = children(jr.split(jr.key(0), BATCH), NUMBERS)
    assert jnp.array_equal(jr.key_data(second), jr.key_data(folded))
    assert not jnp.array_equal(jr.key_data(first), jr.key_data(folded))
