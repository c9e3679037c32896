"""Containers whose children have names: `Map`, `Concat`, `Merge`; and `Splitter`."""

from collections import OrderedDict
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from flax.core import FrozenDict

from networks.reporting import Report, stepped
from nnx_ppo_fn import (
    CompositionError,
    Concat,
    Map,
    Merge,
    Parallel,
    Splitter,
    Stateless,
    unroll,
)


@pytest.mark.parametrize("kind", [Parallel, Map, Concat, Merge])
def test_one_mapping_or_keywords(kind):
    with pytest.raises(ValueError, match="either one mapping or keyword arguments"):
        kind({"a": Report(1.0)}, b=Report(2.0))
    with pytest.raises(CompositionError, match="by strings, got 0"):
        kind({0: Report(1.0)})


class Observation(NamedTuple):
    b: Any
    a: Any


class Seen(eqx.Module):
    b: Any
    a: Any


KINDS = {
    "dict": dict,
    "OrderedDict": OrderedDict,
    "FrozenDict": FrozenDict,
    "NamedTuple": Observation,
    "module": Seen,
}


def two_parts(kind="dict", batch=2):
    """Parts whose sorted order is not the one in which they are declared."""
    return KINDS[kind](b=jnp.full((batch, 1), 20.0), a=jnp.full((batch, 2), 10.0))


@pytest.mark.parametrize("kind", KINDS)
def test_map_gives_each_component_its_entry(kind):
    network = Map(b=Report(1.0), a=Report(2.0))
    for run in (stepped, jax.jit(stepped)):
        result = run(network, two_parts(kind), jr.key(0))
        assert list(result.output) == ["a", "b"]
        np.testing.assert_array_equal(result.output["a"], [[12, 12]] * 2)
        np.testing.assert_array_equal(result.output["b"], [[21]] * 2)
        np.testing.assert_array_equal(result.regularization_loss, [3, 3])
        np.testing.assert_array_equal(result.rollout_extras["b"], [1, 1])


@pytest.mark.parametrize("kind", KINDS)
def test_concat_joins_in_the_order_of_the_names(kind):
    network = Concat(b=Report(1.0), a=Report(2.0))
    for run in (stepped, jax.jit(stepped)):
        result = run(network, two_parts(kind), jr.key(0))
        np.testing.assert_array_equal(result.output, [[12, 12, 21]] * 2)


def test_concat_in_an_unroll_joins_features_and_not_time():
    network = Concat(b=Report(1.0), a=Report(2.0))
    xs = jax.tree.map(lambda leaf: jnp.stack([leaf, 2 * leaf, leaf]), two_parts())
    state = network.initialize_state(jr.split(jr.key(0), 2))
    result = unroll(network, state, xs, jnp.zeros((3, 2), bool)).output
    assert result.shape == (3, 2, 3)
    np.testing.assert_array_equal(result[1], [[22, 22, 41]] * 2)


def test_merge_makes_one_dict_of_several():
    network = Merge(
        one=Stateless(lambda x: {"d": x, "a": 2 * x}),
        two=Parallel(c=Report(1.0), b=Report(3.0)),
    )
    result = stepped(network, jnp.ones((2, 1)))
    assert list(result.output) == ["a", "b", "c", "d"]
    for name, number in {"a": 2, "b": 4, "c": 2, "d": 1}.items():
        np.testing.assert_array_equal(result.output[name], [[number]] * 2)
    np.testing.assert_array_equal(result.regularization_loss, [4, 4])
    assert set(result.metrics) == {"two"}


def test_splitter_cuts_in_declared_order_and_drops_the_rest():
    x = jnp.arange(12.0).reshape(2, 6)
    for run in (stepped, jax.jit(stepped)):
        result = run(Splitter(value=1, action=3), x, jr.key(0)).output
        assert list(result) == ["action", "value"]
        np.testing.assert_array_equal(result["value"], [[0], [6]])
        np.testing.assert_array_equal(result["action"], [[1, 2, 3], [7, 8, 9]])


@pytest.mark.parametrize(
    ("network", "x", "message"),
    [
        (
            Map(a=Report(1.0), bee=Report(1.0)),
            {"a": jnp.ones((2, 1)), "be": jnp.ones((2, 1))},
            r"entries 'a', 'bee'; 'bee' is missing \(did you mean 'be'\?\), "
            r"'be' is for no component \(Filter drops entries\)",
        ),
        (
            Concat(a=Report(1.0)),
            {"a": jnp.ones((2, 1)), "b": jnp.ones((2, 1))},
            "'b' is for no component",
        ),
        (Map(a=Report(1.0)), jnp.ones((2, 1)), r"entries 'a', got .*\[2, 1\]"),
        (Map(a=Report(1.0)), (jnp.ones((2, 1)),), r"sequence .*Filter\(\{'name'"),
        (
            Concat(a=Stateless(lambda x: x[:, 0])),
            {"a": jnp.ones((2, 1))},
            r"Concat\.a to return an array \[B, features\], got \[2\]",
        ),
        (
            Concat(a=Report(1.0), b=Report(1.0)),
            {"a": jnp.ones((2, 1)), "b": jnp.ones((2, 3, 1))},
            r"last axis only, got \['a'\] \[2, 1\], \['b'\] \[2, 3, 1\]",
        ),
        (
            Merge(a=Report(1.0)),
            jnp.ones((2, 1)),
            r"Merge\.a to return a dict, got .*\[2, 1\]",
        ),
        (
            Merge(a=Parallel(x=Report(1.0)), b=Parallel(x=Report(1.0))),
            jnp.ones((2, 1)),
            r"Merge\.a and Merge\.b both return 'x'",
        ),
        (
            Splitter(value=1, action=3),
            jnp.ones((2, 3)),
            r"x \[B, 4\] or wider for value=1, action=3, got \[2, 3\]",
        ),
        (Splitter(value=1), jnp.ones(3), r"got \[3\]"),
    ],
)
def test_what_does_not_fit_is_named_with_its_place(network, x, message):
    with pytest.raises(CompositionError, match=message):
        stepped(network, x)
    # Deeper in a network the place comes first.
    nested = Parallel(deep=Stateless(lambda x: x), wrong=network)
    with pytest.raises(CompositionError, match=rf"in Parallel\.wrong.*: .*{message}"):
        stepped(nested, x)


@pytest.mark.parametrize("x", [{}, 1.0])
def test_an_input_holds_arrays(x):
    network = Map(a=Report(1.0))
    with pytest.raises(CompositionError, match=r"x to hold arrays \[B, \.\.\.\]"):
        network({"a": ()}, x)


def test_slices_have_sizes():
    with pytest.raises(ValueError, match="at least one slice"):
        Splitter()
    with pytest.raises(ValueError, match="'a' must be at least 1, got 0"):
        Splitter(a=0)
