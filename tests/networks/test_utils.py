from collections import OrderedDict
from types import MappingProxyType
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from nnx_ppo_fn import CompositionError, partition_trainable
from nnx_ppo_fn.networks.utils import Filter, Flattener, Map, Scale


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


@pytest.mark.parametrize(
    "factor", [0.5, jnp.float32(0.5)], ids=["a number", "an array"]
)
def test_scale_multiplies_every_number_of_a_tree(factor):
    x = {
        "pixels": jnp.array([[2], [4]], jnp.uint8),
        "half": (jnp.array([1.0, 3.0], jnp.bfloat16),),
        "speed": numbers(2, 2),
    }
    scaled = eqx.filter_jit(lambda scale, x: scale((), x).output)(Scale(factor), x)
    np.testing.assert_array_equal(scaled["pixels"], [[1.0], [2.0]])
    np.testing.assert_array_equal(scaled["half"][0].astype(jnp.float32), [0.5, 1.5])
    np.testing.assert_array_equal(scaled["speed"], [[0, 0.5], [1, 1.5]])
    dtypes = [leaf.dtype for leaf in jax.tree.leaves(scaled)]
    assert dtypes == [jnp.bfloat16, jnp.float32, jnp.float32]


def test_the_factor_of_a_scale_is_not_trained():
    for factor in (2, jnp.float32(2.0)):
        trained, _ = partition_trainable(Scale(factor))
        assert not jax.tree.leaves(trained)


class Observation(NamedTuple):
    image: object
    speed: object


class Seen(eqx.Module):
    image: object
    speed: object


@pytest.mark.parametrize("kind", [dict, OrderedDict, Observation, Seen])
def test_filter_reaches_parts_by_name_wherever_they_have_names(kind):
    inner = kind(image=numbers(2, 3), speed=(numbers(2, 1), numbers(2, 1, start=9)))
    picked = Filter({"x": ("seen", "speed", 1), "y": ("seen", "image")})
    result = jax.jit(picked)((), {"seen": inner}).output
    np.testing.assert_array_equal(result["x"], [[9], [10]])
    np.testing.assert_array_equal(result["y"], numbers(2, 3))
    with pytest.raises(
        CompositionError, match=r"x\['seen'\] has no entry 'sped'.*'speed'\?"
    ):
        Filter({"x": ("seen", "sped")})((), {"seen": inner})


@pytest.mark.parametrize("kind", [Observation, Seen])
def test_flattener_keeps_the_kind_of_the_levels_above(kind):
    x = kind(image=numbers(2, 3, 2), speed=OrderedDict(b=numbers(2), a=numbers(2, 2)))
    kept = Flattener(1)((), x).output
    assert type(kept) is kind
    np.testing.assert_array_equal(kept.image, numbers(2, 6))
    np.testing.assert_array_equal(kept.speed, [[0, 1, 0], [2, 3, 1]])


def test_mappings_that_jax_does_not_know_count_as_mappings():
    plain = {"b": numbers(2, 1), "a": {"c": numbers(2, 2, start=9)}}
    unknown = MappingProxyType(plain | {"a": MappingProxyType(plain["a"])})
    for layer in (
        Flattener(),
        Scale(2.0),
        Filter({"x": ("a", "c")}),
        Map(a=Map(c=Scale(2.0)), b=Scale(3.0)),
    ):
        state = layer.initialize_state(jax.random.split(jax.random.key(0), 2))
        expected, found = (layer(state, x).output for x in (plain, unknown))
        assert eqx.tree_equal(expected, found)
    by_number = Filter({"x": (0,)})((), MappingProxyType({0: plain["b"]}))
    assert by_number.output["x"] is plain["b"]


@pytest.mark.parametrize(
    ("layer", "x", "message"),
    [
        (
            Flattener(),
            {"a": numbers(2, 3), "b": numbers(3, 3)},
            r"the same first axis, got \['a'\] \[2, 3\], \['b'\] \[3, 3\]",
        ),
        (Flattener(1), {"a": numbers(2, 3), "b": None}, r"one array in x.*got None"),
        (Flattener(1), {"a": numbers(2, 3), "b": {}}, r"one array in x.*got {}"),
        (Filter({"a": "b"}), {"b": 1.0}, r"expected x to hold arrays \[B, ...\]"),
        (
            Filter({"a": lambda x: 1.0}),
            {"b": numbers(2, 1)},
            r"expected output\['a'\] \[B, ...\] with \[B\] = \[2\], got float",
        ),
    ],
)
def test_what_has_no_row_for_each_environment_is_named(layer, x, message):
    with pytest.raises(CompositionError, match=message):
        layer((), x)


def test_flattener_takes_a_batch_of_nobody():
    x = {"a": jnp.zeros((0, 2, 3)), "b": jnp.zeros(0)}
    assert Flattener()((), x).output.shape == (0, 7)
