from collections import OrderedDict

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from nnx_ppo_fn import CompositionError
from nnx_ppo_fn.networks.utils import Filter, Flattener


def numbers(*shape, start=0):
    count = int(np.prod(shape))
    return jnp.arange(start, start + count, dtype=jnp.float32).reshape(shape)


def test_flattener_joins_by_sorted_key():
    image, speed = numbers(2, 2, 3), numbers(2, 1, start=100)
    x = OrderedDict(speed=speed, image=image)
    expected = np.concatenate([image.reshape(2, 6), speed], axis=1)
    for layer in (Flattener(), jax.jit(Flattener())):
        np.testing.assert_array_equal(layer((), x).output, expected)


def test_flattener_takes_integers_and_numbers_without_features():
    x = (jnp.array([1, 2]), jnp.array([[True], [False]]))
    output = Flattener()((), x).output
    assert output.dtype == jnp.float32
    np.testing.assert_array_equal(output, [[1, 1], [2, 0]])


def test_flattener_keeps_upper_levels():
    x = {"body": {"p": numbers(2, 4), "t": numbers(2, 2, 4)}, "goal": [numbers(2, 6)]}
    one = Flattener(preserve_levels=1)((), x).output
    assert {name: leaf.shape for name, leaf in one.items()} == {
        "body": (2, 12),
        "goal": (2, 6),
    }
    two = Flattener(preserve_levels=2)((), x).output
    assert two["body"]["t"].shape == (2, 8) and two["goal"][0].shape == (2, 6)
    with pytest.raises(CompositionError, match="1 more levels"):
        Flattener(preserve_levels=2)((), {"a": numbers(2, 4)})
    with pytest.raises(ValueError, match="at least 0"):
        Flattener(-1)
    with pytest.raises(TypeError, match="an integer, got 1.5"):
        Flattener.__init__.__wrapped__(object.__new__(Flattener), 1.5)


@pytest.mark.parametrize(
    ("leaf", "got"),
    [
        (jnp.float32(1), r"got \[\]"),
        (1.0, "got float"),
        (jax.random.split(jax.random.key(0), 2), "got random keys"),
    ],
)
def test_flattener_refuses_what_has_no_features(leaf, got):
    with pytest.raises(CompositionError, match=rf"x\['a'\] to be numbers.*{got}"):
        Flattener()((), {"a": leaf, "b": numbers(2, 1)})


def test_filter_picks_by_key_path_and_function():
    x = {"body": {"joints": (numbers(2, 3), numbers(2, 1))}, "goal": numbers(2, 2)}
    layer = Filter(
        {"second": ("body", "joints", 1), "goal": "goal", "sum": total, "b": "body"}
    )
    output = layer((), x).output
    assert list(output) == ["b", "goal", "second", "sum"]
    np.testing.assert_array_equal(output["second"], [[0], [1]])
    np.testing.assert_array_equal(output["sum"], [1, 5])
    assert output["goal"] is x["goal"]


def total(x):
    return x["goal"].sum(axis=1)


def test_filters_are_equal_and_hashable_by_value():
    one, other = Filter({"a": "b", "c": ("d", 0)}), Filter({"c": ("d", 0), "a": "b"})
    assert one == other
    assert hash(jax.tree.structure(one)) == hash(jax.tree.structure(other))


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"a": "gaol"}, r"x has no entry 'gaol'; it has 'goal', 'pair' .did you mean"),
        ({"a": ("goal", "x")}, r"expected x\['goal'\] to have an entry 'x'"),
        ({"a": ("pair", 2)}, r"x\['pair'\] has 2 entries, none at 2"),
    ],
)
def test_filter_says_what_is_not_there(spec, message):
    x = {"goal": numbers(2, 1), "pair": (numbers(2, 1), numbers(2, 1))}
    with pytest.raises(CompositionError, match=message):
        Filter(spec)((), x)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({}, "Filter expects a mapping .*, got an empty one"),
        ("goal", "Filter expects a mapping .*, got 'goal'"),
        (0, "Filter expects a mapping .*, got 0"),
        (None, "Filter expects a mapping .*, got None"),
        ({1: "a", "b": "b"}, "Filter names its outputs by strings, got 1"),
        ({"a": 3}, "Filter's 'a' must be a key, .*, got 3"),
        ({"a": ()}, "Filter's 'a' must be a key"),
    ],
)
def test_filter_refuses_what_names_nothing(spec, message):
    with pytest.raises(CompositionError, match=message):
        Filter(spec)
