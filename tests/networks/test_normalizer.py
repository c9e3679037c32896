from collections import OrderedDict
from types import MappingProxyType
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from helpers import tree_equal
from nnx_ppo_fn.networks._errors import CompositionError
from nnx_ppo_fn.networks._trainable import partition_trainable
from nnx_ppo_fn.networks.containers import Sequential
from nnx_ppo_fn.networks.normalizer import Normalizer
from nnx_ppo_fn.networks.unroll import unroll


T, B = 6, 4


def updated(samples, **options):
    """A normaliser that has seen `samples`, leaves `[T, B, *shape]`."""
    example = jax.tree.map(lambda leaf: leaf[0, 0], samples)
    return Normalizer.like(example, **options).update_statistics(samples)


def test_before_any_sample_the_mean_is_0_and_std_10():
    result = Normalizer(3)((), jnp.array([[10.0, -20.0, 0.0]]))
    np.testing.assert_allclose(result.output, [[1, -2, 0]], rtol=1e-6)


def test_outputs_are_standardised_with_the_moments_of_numpy(getkey):
    scale = jnp.array([1.0, 5.0, 0.1])[None, None]
    samples = scale * jr.normal(getkey(), (T, B, 3)) + 3.0
    normalizer = updated(samples)
    reference = np.float64(samples).reshape(-1, 3)
    mean, std = reference.mean(0), reference.std(0)
    np.testing.assert_allclose(normalizer.mean, mean, rtol=1e-6)
    np.testing.assert_allclose(normalizer.std, std, rtol=1e-5)
    result = normalizer((), samples[0])
    expected = (np.float64(samples[0]) - mean) / std
    np.testing.assert_allclose(result.output, expected, rtol=1e-4, atol=1e-5)


def test_far_from_zero_nothing_is_lost(getkey):
    samples = 1e6 + jr.normal(getkey(), (T, B, 2))
    normalizer = updated(samples)
    reference = np.float64(samples).reshape(-1, 2)
    expected = (reference - reference.mean(0)) / reference.std(0)
    # Statistics that are constants of the compiled function, and such that are not.
    x = samples.reshape(-1, 2)
    closed_over = jax.jit(lambda x: normalizer((), x).output)(x)
    traced = eqx.filter_jit(lambda module, x: module((), x).output)(normalizer, x)
    for output in (closed_over, traced):
        np.testing.assert_allclose(output, expected, rtol=1e-4, atol=1e-5)


def test_a_constant_feature_is_divided_by_the_smallest_std():
    normalizer = updated(jnp.full((T, B, 1), 0.1))
    np.testing.assert_allclose(normalizer.std, [1e-3], rtol=1e-6)
    np.testing.assert_allclose(
        normalizer((), jnp.array([[0.1], [0.1 + 1e-3]])).output,
        [[0], [1]],
        atol=1e-4,
    )


def test_the_forward_pass_changes_nothing_and_hands_on_its_input(getkey):
    normalizer = updated(jr.normal(getkey(), (T, B, 2)))
    x = jnp.ones((B, 2))
    assert normalizer((), x).rollout_extras is x
    extras = jnp.zeros((B, 2))
    replayed = normalizer((), x, extras)
    assert replayed.rollout_extras is extras
    assert tree_equal(replayed.output, normalizer((), x).output)

    tree = {"a": x, "b": (x, {"c": extras})}
    returned = Normalizer.like({"a": x[0], "b": (x[0], {"c": x[0]})})((), tree)
    for received, emitted in zip(
        jax.tree.leaves(tree), jax.tree.leaves(returned.rollout_extras), strict=True
    ):
        assert emitted is received


def test_statistics_of_every_leaf_of_a_tree(getkey):
    observation = {
        "touch": jr.bernoulli(getkey(), 0.25, (T, B)),
        "image": jr.randint(getkey(), (T, B, 2, 2), 0, 256).astype(jnp.uint8),
        "nested": [jr.normal(getkey(), (T, B, 3)).astype(jnp.bfloat16)],
    }
    shape = {
        "touch": (),
        "image": (2, 2),
        "nested": [jax.ShapeDtypeStruct((3,), jnp.bfloat16)],
    }
    normalizer = Normalizer(shape).update_statistics(observation)
    result = normalizer((), jax.tree.map(lambda leaf: leaf[0], observation))
    assert result.output["touch"].dtype == result.output["image"].dtype == jnp.float32
    assert result.output["nested"][0].dtype == jnp.bfloat16
    for leaf, mean, std in zip(
        jax.tree.leaves(observation),
        jax.tree.leaves(normalizer.mean),
        jax.tree.leaves(normalizer.std),
        strict=True,
    ):
        reference = np.asarray(leaf.astype(jnp.float32), np.float64)
        reference = reference.reshape(T * B, *leaf.shape[2:])
        assert mean.dtype == std.dtype == jnp.float32
        np.testing.assert_allclose(mean, reference.mean(0), rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(std, reference.std(0), rtol=1e-4)


def test_faults_are_seen_in_the_output_and_not_in_the_statistics():
    samples = jnp.array([[[1.0, jnp.nan]], [[3.0, jnp.inf]], [[jnp.nan, jnp.nan]]])
    normalizer = updated(samples)
    np.testing.assert_array_equal(normalizer.mean, [2, 0])
    np.testing.assert_array_equal(normalizer.std, [1, 10])
    x = jnp.array([[jnp.nan, 1.0], [jnp.inf, 1.0], [-jnp.inf, 1.0]])
    output = normalizer((), x).output
    np.testing.assert_array_equal(output[:, 0], [np.nan, np.inf, -np.inf])
    np.testing.assert_allclose(output[:, 1], [0.1] * 3)


def test_clip_limits_infinities_and_keeps_nan():
    x = jnp.array([[jnp.inf, -jnp.inf, 1e9, 30.0, jnp.nan]])
    output = Normalizer(5, clip=5.0)((), x).output
    np.testing.assert_array_equal(output, [[5, -5, 5, 3, np.nan]])


def test_values_whose_square_overflows():
    samples = jnp.array([[[1e30], [-1e30]], [[3e38], [-3e38]]])
    normalizer = updated(samples)
    reference = np.float64(samples)
    np.testing.assert_allclose(normalizer.std, [reference.std()], rtol=1e-6)
    assert np.all(np.isfinite(normalizer.mean))
    output = normalizer((), samples[0]).output
    assert np.all(np.isfinite(output))


def test_an_empty_rollout_changes_nothing(getkey):
    normalizer = updated(jr.normal(getkey(), (T, B, 2)))
    assert tree_equal(
        normalizer.update_statistics(jnp.zeros((0, B, 2))).statistics,
        normalizer.statistics,
    )


def test_steps_left_out_arrive_as_nan(getkey):
    samples = {
        "x": jr.normal(getkey(), (T, B, 2)),
        "n": jr.randint(getkey(), (T, B), 0, 9),
    }
    example = {"x": 2, "n": ()}
    left_out = jnp.zeros((T, B), bool).at[2].set(True)
    masked = {
        "x": jnp.where(left_out[..., None], jnp.nan, samples["x"]),
        "n": jnp.where(left_out, jnp.nan, samples["n"].astype(jnp.float32)),
    }
    without = jax.tree.map(lambda leaf: jnp.delete(leaf, 2, axis=0), samples)
    got = Normalizer(example).update_statistics(masked)
    expected = Normalizer(example).update_statistics(without)
    for one, other in [(got.mean, expected.mean), (got.std, expected.std)]:
        for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def test_nothing_trains():
    parameters, _ = partition_trainable(Normalizer({"a": 3}, clip=5.0))
    assert jax.tree.leaves(parameters) == []


def test_mappings_of_any_kind_and_order_are_the_same_observation(getkey):
    normalizer = Normalizer(OrderedDict(b=2, a=OrderedDict(z=1, y=3)))
    shapes = {"a": {"y": 3, "z": 1}, "b": 2}
    x = jax.tree.map(lambda size: jr.normal(getkey(), (B, size)), shapes)
    other = MappingProxyType(
        {"b": x["b"], "a": OrderedDict(z=x["a"]["z"], y=x["a"]["y"])}
    )
    result = normalizer((), other)
    assert tree_equal(result.output, normalizer((), x).output)
    assert type(result.output) is type(result.rollout_extras["a"]) is dict
    extras = jax.tree.map(lambda leaf: leaf[None], result.rollout_extras)
    assert set(normalizer.update_statistics(extras).mean) == {"a", "b"}


@pytest.mark.parametrize(
    "shape, x, message",
    [
        (1, jnp.ones((5, 64)), r"expected x \[B, 1\], got \[5, 64\]"),
        ((2, 3), jnp.ones((5, 6)), r"expected x \[B, 2, 3\], got \[5, 6\]"),
        ((), jnp.ones((5, 1)), r"expected x \[B\], got \[5, 1\]"),
        (
            {"a": 1, "b": 2},
            {"a": jnp.ones((5, 1))},
            r"expected x\['a'\], x\['b'\]; x\['b'\] is missing",
        ),
        (
            {"a": 1},
            {"a": jnp.ones((5, 1)), "c": jnp.ones((5, 1))},
            r"expected x\['a'\]; x\['c'\] is not known",
        ),
        (
            {"a": 1, "b": 2},
            {"a": jnp.ones((5, 1)), "b": jnp.ones((5, 3))},
            r"expected x\['b'\] \[B, 2\], got \[5, 3\]",
        ),
        ({"a": 1}, jnp.ones((5, 1)), r"x\['a'\] is missing, x is not known"),
    ],
)
def test_what_does_not_fit_is_named(shape, x, message):
    network = Sequential([Normalizer(shape)])
    with pytest.raises(CompositionError, match=message) as caught:
        network(((),), x)
    assert str(caught.value).startswith("in Sequential[0] (Normalizer): ")


def test_statistics_that_do_not_fit_are_named():
    with pytest.raises(CompositionError, match=r"rollout_extras \[T, B, 2\], got \[4"):
        Normalizer(2).update_statistics(jnp.ones((4, 3)))


@pytest.mark.parametrize("shape", [jnp.ones(3), "64", {"a": None}, {}, True, -1, 1.5])
def test_what_is_not_a_shape_is_refused(shape):
    with pytest.raises(ValueError, match="Normalizer expects"):
        Normalizer(shape)


def test_like_takes_one_environments_observation():
    normalizer = Normalizer.like({"x": np.ones((2, 3)), "angle": 0.5})
    assert normalizer.mean["x"].shape == (2, 3) and normalizer.mean["angle"].shape == ()


def test_a_rollout_passes_through_at_once(getkey):
    xs = {"a": jr.normal(getkey(), (T, B, 2)), "b": jr.normal(getkey(), (T, B))}
    normalizer = updated(xs)
    result = unroll(normalizer, (), xs, jnp.zeros((T, B), bool))
    steps = [
        normalizer((), {"a": a, "b": b}).output
        for a, b in zip(xs["a"], xs["b"], strict=True)
    ]
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *steps)
    assert tree_equal(result.output, stacked)
    assert tree_equal(result.rollout_extras, xs)


@pytest.mark.parametrize("shape", [(0,), {"a": (0, 2), "b": 1}])
def test_leaves_without_entries_have_no_statistics(shape):
    normalizer = Normalizer(shape)
    x = jax.tree.map(lambda mean: jnp.ones((T, B, *mean.shape)), normalizer.mean)
    seen = normalizer.update_statistics(x)
    for mean, leaf in zip(jax.tree.leaves(seen.mean), jax.tree.leaves(x), strict=True):
        np.testing.assert_array_equal(mean, leaf[0, 0])


def test_an_observation_may_have_empty_places(getkey):
    observation = {"x": jr.normal(getkey(), (B, 3)), "none": (), "later": {}}
    normalizer = Normalizer.like(jax.tree.map(lambda leaf: leaf[0], observation))
    result = normalizer((), observation)
    assert result.output["none"] == () and result.output["later"] == {}
    extras = jax.tree.map(lambda leaf: leaf[None], result.rollout_extras)
    seen = normalizer.update_statistics(extras)
    np.testing.assert_allclose(
        seen.mean["x"], np.float64(observation["x"]).mean(0), rtol=1e-5, atol=1e-6
    )


@pytest.mark.parametrize(
    "leaf, text",
    [
        (jnp.ones((B, 2), jnp.complex64), r"real numbers in x\['a'\], got complex64"),
        (jr.split(jr.key(0), (B, 2)), r"real numbers in x\['a'\], got key<fry>"),
    ],
    ids=["complex", "keys"],
)
def test_only_real_numbers_can_be_standardised(leaf, text):
    with pytest.raises(CompositionError, match=text):
        Normalizer({"a": 2})((), {"a": leaf})
    with pytest.raises(CompositionError, match="real numbers"):
        Normalizer({"a": 2}).update_statistics({"a": leaf[None]})


class Pair(NamedTuple):
    left: object
    right: object


class Both(eqx.Module):
    left: object
    right: object


@pytest.mark.parametrize("kind", [Pair, Both])
def test_the_order_of_a_mapping_inside_another_node_means_nothing(kind, getkey):
    """Each leaf meets the statistics of its own name, in both directions."""
    samples = {
        "z": jr.normal(getkey(), (3, 2, 1)),
        "a": 5 + jr.normal(getkey(), (3, 2, 1)),
    }
    trees = [
        kind(made(samples), samples["z"])
        for made in (dict, OrderedDict, lambda x: OrderedDict(reversed(x.items())))
    ]
    for tree in trees:
        normalizer = Normalizer(kind({"z": 1, "a": 1}, 1)).update_statistics(tree)
        for name, values in samples.items():
            np.testing.assert_allclose(
                normalizer.mean.left[name], np.mean(values, (0, 1)), rtol=1e-5
            )
    for tree in trees:
        out = normalizer((), jax.tree.map(lambda leaf: leaf[0], tree)).output
        for name, values in samples.items():
            expected = (values[0] - np.mean(values)) / np.std(values)
            np.testing.assert_allclose(out.left[name], expected, rtol=1e-4, atol=1e-5)
