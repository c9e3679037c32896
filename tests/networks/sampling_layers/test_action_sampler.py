import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from nnx_ppo_fn import (
    ActionDistribution,
    ActionSampler,
    CompositionError,
    LSTM,
    Map,
    SampledAction,
    Sequential,
    Stateless,
)
from nnx_ppo_fn.networks._trainable import NonTrainable, partition_trainable
from nnx_ppo_fn.networks.sampling_layers import (
    BetaSampler,
    CategoricalSampler,
    NormalTanhSampler,
)
from nnx_ppo_fn.testing import check_module


class Laplace(ActionDistribution):
    """Double exponentials around locations; a raw action holds magnitudes and signs."""

    location: jax.Array

    def sample(self, keys):
        def draw(key):
            drawn = jr.laplace(key, self.location.shape[1:])
            return {"magnitude": jnp.abs(drawn), "sign": jnp.sign(drawn)}

        return jax.vmap(draw)(keys)

    def mode(self):
        return {
            "magnitude": jnp.zeros_like(self.location),
            "sign": jnp.ones_like(self.location),
        }

    def action(self, raw):
        return raw["sign"] * raw["magnitude"]

    def log_likelihood(self, raw):
        distance = jnp.abs(self.action(raw) - self.location)
        return jnp.sum(-distance - jnp.log(2.0), axis=-1)

    def entropy(self, sample):
        return jnp.full(len(self.location), (1 + np.log(2)) * self.location.shape[-1])


class ShiftedLaplace(Laplace):
    """With draws around the locations, as the likelihood says."""

    def sample(self, keys):
        def draw(key, location):
            drawn = location + jr.laplace(key, location.shape)
            return {"magnitude": jnp.abs(drawn), "sign": jnp.sign(drawn)}

        return jax.vmap(draw)(keys, self.location)

    def mode(self):
        return {"magnitude": jnp.abs(self.location), "sign": jnp.sign(self.location)}


class LaplaceSampler(ActionSampler):
    """A sampler of a user's own, whose raw actions are trees."""

    kind: type[Laplace] = eqx.field(default=ShiftedLaplace, static=True)
    entropy_weight: float = 0.25
    inference: bool = False

    def distribution(self, x):
        return self.kind(x)


def test_a_sampler_of_ones_own_obeys_the_laws(getkey):
    check_module(LaplaceSampler(), jr.normal(getkey(), (5, 2)), key=getkey(), length=4)


def test_a_wrong_draw_is_caught(getkey):
    x = jr.normal(getkey(), (5, 2))
    with pytest.raises(AssertionError, match="breaks the law of re-weighting"):
        check_module(LaplaceSampler(Laplace), x, key=getkey(), length=4)


def test_what_the_family_does_for_it(getkey):
    x, keys = jr.normal(getkey(), (5, 2)), jr.split(getkey(), 5)
    result = LaplaceSampler()(keys, x)
    assert isinstance(result.output, SampledAction)
    raw = result.rollout_extras
    np.testing.assert_array_equal(result.output.action, raw["sign"] * raw["magnitude"])
    np.testing.assert_allclose(
        result.regularization_loss, [-0.25 * 2 * (1 + np.log(2))] * 5, rtol=1e-6
    )
    silent = eqx.nn.inference_mode(LaplaceSampler())(keys, x)
    np.testing.assert_allclose(silent.output.action, x, rtol=1e-6)
    gradient = jax.grad(lambda x: jnp.sum(LaplaceSampler()(keys, x).output.action))(x)
    np.testing.assert_array_equal(gradient, np.zeros((5, 2)))


def test_a_bare_array_would_train_away_the_weight_of_the_entropy(getkey):
    x, keys = jr.normal(getkey(), (5, 2)), jr.split(getkey(), 5)
    for wrong in (
        jnp.array(0.25),
        np.array(0.25),
        np.float32(0.25),
        None,
        "0.25",
        True,
    ):
        with pytest.raises(TypeError, match="LaplaceSampler.entropy_weight must be a"):
            LaplaceSampler(entropy_weight=wrong)
    for wrong in (float("nan"), NonTrainable(jnp.array(jnp.inf))):
        with pytest.raises(ValueError, match="entropy_weight must be finite"):
            LaplaceSampler(entropy_weight=wrong)
    held = LaplaceSampler(entropy_weight=NonTrainable(jnp.array(0.25)))
    assert jax.tree.leaves(partition_trainable(held)[0]) == []
    one, same = (s(keys, x).regularization_loss for s in (held, LaplaceSampler()))
    np.testing.assert_array_equal(one, same)


def test_a_family_of_low_precision_still_gives_numbers_of_float32(getkey):
    """As an author who does not think of it gets from a network in bfloat16."""
    x, keys = jr.normal(getkey(), (5, 2), jnp.bfloat16), jr.split(getkey(), 5)
    with jax.numpy_dtype_promotion("standard"):
        result = LaplaceSampler()(keys, x)
    assert result.output.log_likelihood.dtype == jnp.float32
    assert result.regularization_loss.dtype == jnp.float32


class NoDistribution(LaplaceSampler):
    """Forgets to say what is drawn from."""

    def distribution(self, x):
        return x


class Unsummed(ShiftedLaplace):
    """A density for each component."""

    def log_likelihood(self, raw):
        return -jnp.abs(self.action(raw) - self.location)


def test_what_an_author_forgets_is_explained(getkey):
    x, keys = jr.normal(getkey(), (5, 2)), jr.split(getkey(), 5)
    with pytest.raises(CompositionError, match="NoDistribution.distribution to return"):
        NoDistribution()(keys, x)
    with pytest.raises(CompositionError, match=r"Unsummed.log_l.*\[5\], got \[5, 2\]"):
        LaplaceSampler(Unsummed)(keys, x)


def test_the_entropy_may_be_swept(getkey):
    x, keys = jr.normal(getkey(), (5, 4)), jr.split(getkey(), 5)

    @jax.vmap
    def losses(weight):
        return BetaSampler(NonTrainable(weight))(keys, x).regularization_loss

    one, two = losses(jnp.array([1.0, 2.0]))
    np.testing.assert_allclose(2 * one, two, rtol=1e-6)


def test_a_bank_of_samplers_obeys_the_laws(getkey):
    bank = Map(arm=NormalTanhSampler(0.1), grip=CategoricalSampler(0.1))
    mask = jr.bernoulli(getkey(), 0.5, (5, 3)).at[:, 0].set(True)
    x = {
        "arm": jr.normal(getkey(), (5, 4)),
        "grip": {"logits": jr.normal(getkey(), (5, 3)), "mask": mask},
    }
    result = bank(bank.initialize_state(jr.split(getkey(), 5)), x)
    assert result.output["arm"].action.shape == (5, 2)
    assert result.output["grip"].action.shape == (5,)
    assert np.all(np.take_along_axis(mask, result.output["grip"].action[:, None], 1))
    check_module(bank, x, key=getkey(), length=4)


def test_a_mask_goes_around_a_memory(getkey):
    network = Sequential(
        [
            Map(logits=LSTM(3, 4, key=getkey()), mask=Stateless(lambda mask: mask)),
            CategoricalSampler(0.1),
        ]
    )
    mask = jr.bernoulli(getkey(), 0.5, (5, 4)).at[:, 0].set(True)
    x = {"logits": jr.normal(getkey(), (5, 3)), "mask": mask}
    check_module(network, x, key=getkey(), length=4, laws=["replay", "unroll"])
