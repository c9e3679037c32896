"""What the page says is different is so: there, and here."""

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import jax.tree_util as jtu
import numpy as np
import pytest
from flax import nnx
from nnx_ppo.networks import (
    containers,
    feedforward,
    normalizer,
    sampling_layers,
    utils,
    variational,
)

from nnx_ppo_fn import (
    AR1VariationalBottleneck,
    CompositionError,
    Concat,
    Dense,
    Flattener,
    Map,
    Normalizer,
    NormalTanhSampler,
    SampledAction,
    Scale,
    Sequential,
    Splitter,
    VariationalBottleneck,
)
from peer.original import as_released, KEY


KEYS = jr.split(KEY, 3)
X = jnp.asarray(np.random.default_rng(5).normal(size=(3, 4)), jnp.float32)
LAST = jnp.array([2])


def test_1_noise_depends_on_who_shares_the_batch():
    with as_released():
        in_batch, alone = (
            sampling_layers.NormalTanhSampler(nnx.Rngs(0), 0.1)((), x)
            for x in (X, X[LAST])
        )
    assert in_batch.output["action"][2, 0] != alone.output["action"][0, 0]

    ours = NormalTanhSampler(0.1)
    in_batch, alone = ours(KEYS, X), ours(KEYS[LAST], X[LAST])
    assert in_batch.output.action[2, 0] == alone.output.action[0, 0]


def test_2_statistics_are_returned_and_inference_is_silent():
    theirs, ours = normalizer.Normalizer(4), Normalizer(4)
    with as_released():
        assert theirs.update_statistics(X[None]) is None
    updated = ours.update_statistics(X[None])
    np.testing.assert_allclose(theirs.mean.get_value(), updated.mean, rtol=1e-6)
    assert not ours.mean.any()

    noisy = variational.VariationalBottleneck(2, nnx.Rngs(0))
    noisy.eval()
    mean, _ = jnp.split(X, 2, axis=-1)
    with as_released():
        assert not np.array_equal(noisy(KEYS, X).output, mean)
    silent = eqx.nn.inference_mode(VariationalBottleneck(2))
    assert np.array_equal(silent(KEYS, X).output, mean)


def test_3_weights_are_the_layers_own():
    theirs = feedforward.Dense(4, 2, nnx.Rngs(0), use_bias=False)
    ours = Dense(4, 2, key=KEY, use_bias=False)
    assert theirs.linear.kernel[...].shape == ours.kernel.shape
    with pytest.raises(TypeError, match="precision"):
        Dense(4, 2, key=KEY, precision=None)


def test_4_a_sampler_returns_a_sampled_action():
    with as_released():
        theirs = sampling_layers.NormalTanhSampler(nnx.Rngs(0), 0.1)((), X)
    assert theirs.output.keys() == {"action", "log_likelihood"}
    assert isinstance(NormalTanhSampler(0.1)(KEYS, X).output, SampledAction)


def test_5_carries_say_what_they_are():
    theirs = variational.AR1VariationalBottleneck(2, nnx.Rngs(0)).initialize_state(3)
    ours = AR1VariationalBottleneck(2).initialize_state(KEYS)
    assert np.isnan(theirs["last_z"]).all()
    assert not ours.has_last.any()
    assert not ours.last_latent.any()
    assert isinstance(containers.Sequential([]).initialize_state(3), list)
    assert isinstance(Sequential([Flattener()]).initialize_state(KEYS), tuple)


def test_6_one_number_per_environment():
    theirs = containers.Sequential([variational.VariationalBottleneck(2, nnx.Rngs(0))])
    ours = Sequential([VariationalBottleneck(2), Flattener()])
    with as_released():
        their_metrics = theirs([KEYS], X).metrics
        loss = utils.Flattener()((), X).regularization_loss
    assert their_metrics[0]["mu"].shape == (3, 2)
    assert loss.shape == ()
    stepped = ours((KEYS, ()), X)
    assert stepped.metrics.keys() == {"0"}
    assert {leaf.shape for leaf in jtu.tree_leaves(stepped.metrics)} == {(3,)}
    assert Flattener()((), X).regularization_loss.shape == (3,)


@pytest.mark.parametrize("kind", ["Map", "Concat"])
def test_7_an_entry_too_much_is_refused(kind):
    theirs = utils.Map if kind == "Map" else containers.Concat
    ours = Map if kind == "Map" else Concat
    x = {"a": X, "b": X}
    with as_released():
        theirs(a=utils.Flattener())({"a": ()}, x)
    with pytest.raises(CompositionError, match="'b'"):
        ours(a=Flattener())({"a": ()}, x)


def test_7_an_input_that_is_too_narrow_is_refused():
    theirs = containers.Splitter(a=3, b=3)((), X)
    assert theirs.output["b"].shape == (3, 1)
    with pytest.raises(CompositionError, match=r"\[B, 6\]"):
        Splitter(a=3, b=3)((), X)


def test_7_an_input_that_would_only_broadcast_is_refused():
    with as_released():
        assert normalizer.Normalizer(1)((), X).output.shape == (3, 4)
    with pytest.raises(CompositionError, match=r"\[B, 1\]"):
        Normalizer(1)((), X)


def test_7_entries_are_sorted_there_after_the_first_compilation():
    with as_released():
        theirs = containers.Concat(b=utils.Scale(1.0), a=utils.Scale(2.0))
        x = {"a": X, "b": X}
        at_first = theirs({"a": (), "b": ()}, x).output
        later = nnx.merge(*nnx.split(theirs))({"a": (), "b": ()}, x).output
    ours = Concat(b=Scale(1.0), a=Scale(2.0))({"a": (), "b": ()}, x).output
    assert np.array_equal(at_first, np.concatenate([X, 2 * X], axis=-1))
    assert np.array_equal(later, np.concatenate([2 * X, X], axis=-1))
    assert np.array_equal(ours, later)


def test_8_nan_is_no_sample():
    faulty = X[None].at[0, 1, 2].set(jnp.nan)
    theirs = normalizer.Normalizer(4)
    with as_released():
        theirs.update_statistics(faulty)
    ours = Normalizer(4).update_statistics(faulty)
    assert np.isnan(theirs.mean.get_value()[2])
    kept = np.asarray(X, np.float64)[[0, 2], 2]
    np.testing.assert_allclose(ours.mean[2], np.mean(kept), rtol=1e-6)
    np.testing.assert_allclose(ours.std[2], np.std(kept), rtol=1e-6)


def test_8_a_tuple_in_a_tree_is_a_shape():
    theirs = normalizer.Normalizer({"image": (8, 8)}).mean.get_value()
    assert [leaf.shape for leaf in theirs["image"]] == [(8,), (8,)]
    assert Normalizer({"image": (8, 8)}).mean["image"].shape == (8, 8)


def test_8_integers_become_floats():
    integers = jnp.ones((3, 2), jnp.int32)
    with as_released():
        assert utils.Flattener()((), integers).output.dtype == jnp.int32
    assert Flattener()((), integers).output.dtype == jnp.float32
