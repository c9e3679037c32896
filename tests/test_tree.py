import dataclasses
from collections import OrderedDict
from types import MappingProxyType
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import jax.tree_util as jtu
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from helpers import tree_equal
from nnx_ppo_fn._tree import (
    anywhere,
    canonical,
    entries,
    into_groups,
    is_key,
    merge_time,
    out_of_groups,
    select,
    shape_text,
    split_time,
    strong,
    take,
)


class Pair(NamedTuple):
    left: object
    right: object


class Module(eqx.Module):
    left: object
    right: object
    name: str = eqx.field(static=True, default="camera")


@jtu.register_dataclass
@dataclasses.dataclass
class Registered:
    left: object
    right: object
    name: str = dataclasses.field(default="camera", metadata={"static": True})


NODES = [Pair, Module, Registered]


shapes = st.tuples(st.integers(0, 4), st.integers(1, 4), st.integers(0, 3))


@settings(max_examples=20, deadline=None)
@given(shapes)
def test_split_undoes_merge(shape):
    length, batch, features = shape
    tree = {
        "a": np.arange(length * batch * features).reshape(length, batch, features),
        "b": (np.arange(length * batch).reshape(length, batch) > 2,),
    }
    merged = merge_time(tree)
    assert merged["a"].shape == (length * batch, features)
    restored = split_time(merged, (length, batch))
    np.testing.assert_array_equal(restored["a"], tree["a"])
    np.testing.assert_array_equal(restored["b"][0], tree["b"][0])


def test_groups_are_of_neighbours(getkey):
    leaves = {
        "numbers": np.arange(24).reshape(2, 12),
        "keys": jr.split(getkey(), (2, 12)),
    }
    grouped = into_groups(leaves, 3, axis=1)
    np.testing.assert_array_equal(
        grouped["numbers"][1], [[12, 13, 14, 15], [16, 17, 18, 19], [20, 21, 22, 23]]
    )
    assert grouped["keys"].shape == (2, 3, 4)
    assert tree_equal(out_of_groups(grouped, axis=1), leaves)
    assert into_groups(leaves, 2)["numbers"].shape == (2, 1, 12)


@settings(max_examples=20, deadline=None)
@given(st.lists(st.booleans(), min_size=1, max_size=5), st.integers(0, 2))
def test_select_picks_whole_rows(mask, ndim):
    shape = (len(mask), *range(2, 2 + ndim))
    ones, zeros = jnp.ones(shape), jnp.zeros(shape)
    picked = np.asarray(select(jnp.array(mask), ones, zeros))
    rows = np.array(mask, np.float32).reshape(-1, *[1] * ndim)
    np.testing.assert_array_equal(picked, np.broadcast_to(rows, shape))


def test_select_lets_no_nan_through_and_works_on_keys(getkey):
    mask = jnp.array([True, False])
    poisoned = jnp.full((2, 3), jnp.nan)
    kept = select(~mask, {"x": poisoned}, {"x": jnp.ones((2, 3))})["x"]
    np.testing.assert_array_equal(kept[0], [1, 1, 1])
    gradient = jax.grad(
        lambda scale: jnp.sum(select(mask, scale * jnp.ones((2, 3)), poisoned)[0])
    )(2.0)
    assert gradient == 3

    left, right = jr.split(getkey(), (2, 2))
    picked = select(mask, left, right)
    np.testing.assert_array_equal(
        jr.key_data(picked), jr.key_data(jnp.stack([left[0], right[1]]))
    )


def test_select_passes_through_what_is_the_same():
    array = jnp.ones(2)
    assert select(jnp.array([True, False]), (array,), (array,))[0] is array


def test_take_along_both_axes():
    x = np.arange(24).reshape(2, 3, 4)
    rows = jnp.array([2, 0, 2])
    np.testing.assert_array_equal(take((x,), rows, axis=1)[0], x[:, [2, 0, 2]])
    np.testing.assert_array_equal(take(x[0], rows, axis=0), x[0][[2, 0, 2]])


def test_strong_removes_weak_types_and_keeps_values(getkey):
    key = getkey()
    tree = strong({"weak": jnp.array(1.0) * 2, "python": 3, "key": key})
    assert not tree["weak"].weak_type and tree["weak"] == 2
    assert not tree["python"].weak_type and tree["python"].dtype == jnp.int32
    assert tree["key"] is key


def test_canonical_sorts_every_mapping():
    leaf = np.ones(3)
    tree = OrderedDict(b=leaf, a=[MappingProxyType({"d": 1, "c": (leaf,)})])
    result = canonical(tree)
    assert type(result) is dict and list(result) == ["a", "b"]
    assert type(result["a"][0]) is dict and list(result["a"][0]) == ["c", "d"]
    assert result["b"] is leaf and result["a"][0]["c"][0] is leaf


@pytest.mark.parametrize("kind", NODES)
def test_canonical_reaches_into_every_node(kind):
    leaf = np.ones(3)
    tree = [kind(OrderedDict(b=leaf, a=MappingProxyType({"d": None})), kind((), leaf))]
    (result,) = canonical(tree)
    assert type(result) is kind and type(result.right) is kind
    assert type(result.left) is dict and list(result.left) == ["a", "b"]
    assert result.left["a"] == {"d": None} and type(result.left["a"]) is dict
    assert result.left["b"] is leaf and result.right.right is leaf
    assert result.right.left == ()


def test_what_cannot_be_sorted_is_named():
    for function in (canonical, entries):
        with pytest.raises(TypeError, match=r"keys that can be sorted.*\[0, 'a'\]"):
            function({0: 1, "a": 2})


def test_is_key(getkey):
    key = getkey()
    assert is_key(key) and is_key(jax.eval_shape(lambda: key))
    assert not is_key(jr.key_data(key)) and not is_key(3)


def test_shape_text_names_the_leaves_of_a_tree():
    assert shape_text(np.ones((2, 3))) == "[2, 3]"
    assert shape_text({"a": np.ones(2), "b": 1.0}) == "['a'] [2], ['b'] float"
    assert shape_text({}) == "{}"


def test_anywhere_is_any_and_over_all_runs_under_vmap():
    flags = jnp.array([[False, False], [True, False], [False, False]])
    assert not anywhere(flags[0]) and anywhere(flags[1])
    np.testing.assert_array_equal(jax.vmap(anywhere)(flags), [True, True, True])
    np.testing.assert_array_equal(jax.vmap(anywhere)(flags[::2]), [False, False])
    one_of_many = jnp.zeros((2, 3, 4), bool).at[1, 2, 0].set(True)
    twice = jax.vmap(jax.vmap(anywhere))(one_of_many)
    np.testing.assert_array_equal(twice, np.ones((2, 3)))


def test_a_cond_on_anywhere_stays_a_cond_under_vmap():
    def step(flags):
        return jax.lax.cond(anywhere(flags), jnp.sin, jnp.cos, 1.0)

    text = str(jax.make_jaxpr(jax.vmap(step))(jnp.zeros((2, 3), bool)))
    assert "cond[" in text and "select_n" not in text


def test_entries_are_the_parts_that_have_names():
    pair = Pair(left=2, right=1)
    assert list(entries({"b": 1, "a": 2}).items()) == [("a", 2), ("b", 1)]
    assert list(entries(MappingProxyType({"b": 1, "a": 2}))) == ["a", "b"]
    assert entries(pair) == {"left": 2, "right": 1}
    for kind in (Module, Registered):
        assert entries(kind(2, None)) == {"left": 2, "right": None}
    for nameless in ((1, 2), [1], np.zeros(2), 1, Pair):
        assert entries(nameless) is None
