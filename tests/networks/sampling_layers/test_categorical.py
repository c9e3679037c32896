import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from scipy import stats

from nnx_ppo_fn.networks._errors import CompositionError
from nnx_ppo_fn.networks.sampling_layers import (
    CategoricalSampler,
    MultiCategoricalSampler,
)


def reference_log_probabilities(logits, mask=None):
    logits = np.asarray(logits, np.float64)
    logits = logits if mask is None else np.where(mask, logits, -np.inf)
    return logits - np.log(np.sum(np.exp(logits), axis=-1, keepdims=True))


def test_likelihoods_and_entropy_of_a_categorical(getkey):
    logits, keys = jr.normal(getkey(), (6, 4)), jr.split(getkey(), 6)
    result = CategoricalSampler(0.5)(keys, logits)
    expected = reference_log_probabilities(logits)
    action = np.asarray(result.output.action)
    assert action.dtype == np.int32 and result.rollout_extras is result.output.action
    np.testing.assert_allclose(
        result.output.log_likelihood, expected[np.arange(6), action], rtol=1e-5
    )
    entropy = [stats.entropy(np.exp(row)) for row in expected]
    np.testing.assert_allclose(result.metrics["entropy"], entropy, rtol=1e-5)
    np.testing.assert_allclose(
        result.regularization_loss, -0.5 * np.array(entropy), rtol=1e-5
    )

    recorded = jnp.array([3, 2, 1, 0, 0, 1], jnp.int32)
    replayed = CategoricalSampler(0.5)(keys, logits, recorded)
    assert replayed.output.action is recorded is replayed.rollout_extras
    np.testing.assert_allclose(
        replayed.output.log_likelihood, expected[np.arange(6), recorded], rtol=1e-5
    )


def test_actions_are_drawn_with_their_probabilities():
    batch = 20_000
    logits = jnp.tile(jnp.log(jnp.array([[0.1, 0.2, 0.3, 0.4]])), (batch, 1))
    mask = jnp.tile(jnp.array([[True, True, False, True]]), (batch, 1))
    keys = jr.split(jr.key(2), batch)
    sample = jax.jit(lambda x: CategoricalSampler(0.0)(keys, x).output.action)
    for x, p in [
        (logits, [0.1, 0.2, 0.3, 0.4]),
        ({"logits": logits, "mask": mask}, [1 / 7, 2 / 7, 0, 4 / 7]),
    ]:
        counts = np.bincount(sample(x), minlength=4)
        allowed = np.array(p) > 0
        assert np.all(counts[~allowed] == 0)
        expected = batch * np.array(p)[allowed]
        assert stats.chisquare(counts[allowed], expected).pvalue > 1e-3


@jax.jit
def run_masked(logits, mask, extras=None):
    sampler = CategoricalSampler(1.0)
    keys = jr.split(jr.key(0), len(logits))

    def loss(logits):
        result = sampler(keys, {"logits": logits, "mask": mask}, extras)
        total = jnp.sum(result.output.log_likelihood + result.regularization_loss)
        return total, result

    (_, result), gradient = jax.value_and_grad(loss, has_aux=True)(logits)
    return result, gradient


def test_one_allowed_action_is_certain():
    logits = jnp.array([[5.0, -3.0, 1e4], [0.0, 0.0, 0.0]])
    mask = jnp.array([[False, True, False], [True, False, False]])
    result, gradient = run_masked(logits, mask)
    np.testing.assert_array_equal(result.output.action, [1, 0])
    np.testing.assert_array_equal(result.output.log_likelihood, [0, 0])
    np.testing.assert_array_equal(result.metrics["entropy"], [0, 0])
    np.testing.assert_array_equal(gradient, np.zeros((2, 3)))


def test_masked_entropy_and_likelihood_leave_out_what_is_forbidden(getkey):
    logits = jr.normal(getkey(), (3, 4))
    mask = jnp.array([[True, True, False, True]] * 3)
    result, gradient = run_masked(logits, mask)
    expected = reference_log_probabilities(logits, mask)
    action = result.output.action
    np.testing.assert_allclose(
        result.output.log_likelihood, expected[np.arange(3), action], rtol=1e-5
    )
    entropy = [stats.entropy(np.exp(row)) for row in expected]
    np.testing.assert_allclose(result.metrics["entropy"], entropy, rtol=1e-5)
    np.testing.assert_array_equal(gradient[:, 2], np.zeros(3))
    assert np.all(np.isfinite(gradient))


def test_no_allowed_action_stays_finite():
    logits = jnp.array([[1.0, 2.0, 3.0]])
    result, gradient = run_masked(logits, jnp.zeros((1, 3), bool))
    expected = reference_log_probabilities(logits)[0, int(result.output.action[0])]
    np.testing.assert_allclose(result.output.log_likelihood, [expected], rtol=1e-5)
    assert np.all(np.isfinite(gradient))


def test_a_recorded_action_that_is_forbidden_now_stays_finite():
    mask = jnp.array([[True, False, True]])
    result, gradient = run_masked(jnp.zeros((1, 3)), mask, jnp.array([1], jnp.int32))
    assert result.output.log_likelihood[0] < -1e20
    assert np.all(np.isfinite(gradient))


def test_inference_gives_the_likeliest_allowed_action():
    sampler = eqx.nn.inference_mode(CategoricalSampler(0.0))
    logits = jnp.array([[0.0, 2.0, 1.0]])
    keys = jr.split(jr.key(0), 1)
    assert sampler(keys, logits).output.action == 1
    x = {"logits": logits, "mask": jnp.array([[True, False, True]])}
    assert sampler(keys, x).output.action == 2


@pytest.mark.parametrize(
    "x, message",
    [
        (
            jnp.ones((2, 3, 4)),
            r"expected logits \[B, n\] of at least one, got \[2, 3, 4\]",
        ),
        ({"logits": jnp.ones((2, 3))}, r"got one with \['logits'\]"),
        (
            {"logits": jnp.ones((2, 3)), "mask": jnp.ones((2, 3))},
            r"boolean mask \[2, 3\] like the logits, got float32 \[2, 3\]",
        ),
    ],
)
def test_wrong_logits_are_explained(x, message):
    with pytest.raises(CompositionError, match=message):
        CategoricalSampler(0.0)(jr.split(jr.key(0), 2), x)


def test_logits_of_minus_infinity_forbid_as_a_mask_does(getkey):
    finite, mask = jr.normal(getkey(), (3, 4)), jnp.array([[True, True, False, True]])
    keys = jr.split(getkey(), 3)

    @jax.jit
    def run(x):
        def loss(x):
            result = CategoricalSampler(1.0)(keys, x)
            return jnp.sum(
                result.output.log_likelihood + result.regularization_loss
            ), result

        return jax.grad(loss, has_aux=True, allow_int=True)(x)

    gradient, forbidden = run(jnp.where(mask, finite, -jnp.inf))
    masked_gradient, masked = run({"logits": finite, "mask": jnp.tile(mask, (3, 1))})
    np.testing.assert_array_equal(forbidden.output.action, masked.output.action)
    np.testing.assert_array_equal(
        forbidden.metrics["entropy"], masked.metrics["entropy"]
    )
    np.testing.assert_array_equal(gradient, masked_gradient["logits"])
    assert np.all(np.isfinite(gradient)) and np.all(forbidden.metrics["entropy"] > 0)


@pytest.mark.parametrize("low", [-1e30, -1e38])
def test_forbidden_actions_are_not_drawn_however_low_the_allowed_logits(low):
    logits = jnp.full((200, 4), low)
    mask = jnp.tile(jnp.array([[False, True, False, True]]), (200, 1))
    result = CategoricalSampler(0.0)(
        jr.split(jr.key(0), 200), {"logits": logits, "mask": mask}
    )
    assert set(np.unique(result.output.action)) == {1, 3}
    np.testing.assert_allclose(result.metrics["entropy"], np.log(2), rtol=1e-6)


def test_no_choice_left_by_infinite_logits_is_even():
    logits = jnp.array([[-jnp.inf, -jnp.inf, -jnp.inf], [0.0, -jnp.inf, -jnp.inf]])
    mask = jnp.array([[True, True, False], [False, True, True]])
    result, gradient = run_masked(logits, mask)
    assert np.all(np.isin(result.output.action, [[0, 1], [1, 2]]))
    np.testing.assert_allclose(result.output.log_likelihood, -np.log([2, 2]), rtol=1e-6)
    np.testing.assert_allclose(result.metrics["entropy"], np.log([2, 2]), rtol=1e-6)
    np.testing.assert_array_equal(gradient, np.zeros((2, 3)))


# Several choices


def one_by_one(logits, mask, keys):
    """The same choices by samplers of their own; they draw other numbers."""
    for columns in (slice(0, 3), slice(3, 4), slice(4, 6)):
        x = {"logits": logits[:, columns], "mask": mask[:, columns]}
        yield CategoricalSampler(0.5)(keys, x)


@jax.jit
def choose(logits, mask, extras=None):
    """A step of a sampler of choices among 3, 1 and 2, and the gradient."""
    sampler = MultiCategoricalSampler(0.5, (3, 1, 2))
    keys = jr.split(jr.key(0), len(logits))

    def loss(logits):
        result = sampler(keys, {"logits": logits, "mask": mask}, extras)
        return jnp.sum(result.output.log_likelihood + result.regularization_loss), (
            result
        )

    gradient, result = jax.grad(loss, has_aux=True)(logits)
    return result, gradient


def test_several_choices_are_as_many_samplers(getkey):
    logits = jr.normal(getkey(), (40, 6))
    mask = jr.bernoulli(getkey(), 0.5, (40, 6))
    result, _ = choose(logits, mask)
    action = np.asarray(result.output.action)
    assert action.shape == (40, 3) and action.dtype == np.int32
    assert np.all(action >= 0) and np.all(action < np.array([3, 1, 2]))
    parts = list(one_by_one(logits, mask, jr.split(jr.key(0), 40)))
    entropy = sum(np.float64(part.metrics["entropy"]) for part in parts)
    np.testing.assert_allclose(result.metrics["entropy"], entropy, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(result.regularization_loss, -0.5 * entropy, rtol=1e-4)
    likelihood = 0.0
    for choice, columns in enumerate((slice(0, 3), slice(3, 4), slice(4, 6))):
        x = {"logits": logits[:, columns], "mask": mask[:, columns]}
        replayed = CategoricalSampler(0.5)(
            jr.split(jr.key(0), 40), x, jnp.asarray(action[:, choice])
        )
        likelihood += np.float64(replayed.output.log_likelihood)
    np.testing.assert_allclose(
        result.output.log_likelihood, likelihood, rtol=1e-4, atol=1e-6
    )


def test_every_choice_has_its_own_mask():
    # One possibility left in each, none left in the first, none in any.
    mask = jnp.array([[0, 1, 0, 1, 0, 1], [0, 0, 0, 1, 1, 0], [0] * 6], bool)
    logits = jnp.array([[5.0, -3.0, 1e4, 0.0, 9.0, -9.0]] * 3)
    result, gradient = choose(logits, mask)
    np.testing.assert_array_equal(result.output.action[0], [1, 0, 1])
    assert result.output.log_likelihood[0] == result.metrics["entropy"][0] == 0
    # The first choice is as without a mask, where 1e4 wins; the last is certain.
    np.testing.assert_array_equal(result.output.action[1:], [[2, 0, 0], [2, 0, 0]])
    np.testing.assert_allclose(result.output.log_likelihood, np.zeros(3), atol=1e-6)
    np.testing.assert_array_equal(gradient[0], np.zeros(6))
    assert np.all(np.isfinite(gradient))


def test_several_choices_are_drawn_with_their_probabilities():
    batch = 20_000
    p = np.array([0.2, 0.5, 0.3, 1.0, 0.1, 0.9])
    logits = jnp.tile(jnp.log(jnp.asarray(p, jnp.float32))[None], (batch, 1))
    sampler = MultiCategoricalSampler(0.0, [3, 1, 2])
    keys = jr.split(jr.key(2), batch)
    action = np.asarray(jax.jit(lambda x: sampler(keys, x).output.action)(logits))
    together = np.zeros((3, 2))
    np.add.at(together, (action[:, 0], action[:, 2]), 1)
    # Independent of each other as well.
    expected = batch * np.outer(p[:3], p[4:])
    assert stats.chisquare(together.ravel(), expected.ravel()).pvalue > 1e-3
    assert not np.any(action[:, 1])


def test_inference_gives_the_likeliest_of_each():
    sampler = eqx.nn.inference_mode(MultiCategoricalSampler(0.0, (3, 1, 2)))
    logits = jnp.array([[0.0, 2.0, 1.0, -5.0, -1.0, -2.0]])
    action = sampler(jr.split(jr.key(0), 1), logits).output.action
    np.testing.assert_array_equal(action, [[1, 0, 0]])


def test_forbidden_recordings_of_several_choices_stay_finite():
    mask = jnp.array([[True, False, True, True, True, False]])
    recorded = jnp.array([[1, 0, 1]], jnp.int32)
    result, gradient = choose(jnp.zeros((1, 6)), mask, recorded)
    assert -np.inf < result.output.log_likelihood[0] < -1e20
    assert np.all(np.isfinite(gradient))


def test_sizes_of_choices_are_checked():
    for sizes, message in (
        ((), "got none"),
        ((2, 0), r"sizes\[1\] must be at least 1"),
    ):
        with pytest.raises(ValueError, match=message):
            MultiCategoricalSampler(0.0, sizes)
    with pytest.raises(CompositionError, match=r"logits \[B, 5\].*\[3, 2\].*\[2, 4\]"):
        MultiCategoricalSampler(0.0, (3, 2))(jr.split(jr.key(0), 2), jnp.ones((2, 4)))
