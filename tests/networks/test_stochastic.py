"""Noise, dropout and gates: their distributions, gradients and silence."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import jax.tree_util as jtu
import numpy as np
import pytest
import scipy.special
import scipy.stats

from helpers import tree_equal
from nnx_ppo_fn import (
    AR1VariationalBottleneck,
    BernoulliGate,
    BetaSampler,
    CompositionError,
    Dropout,
    GaussianNoise,
    NonTrainable,
    partition_trainable,
    unroll,
    VariationalBottleneck,
)
from nnx_ppo_fn._expect import expect_choice
from nnx_ppo_fn._keys import advance_keys, normals


# How many standard errors a mean may be off.
SIGMAS = 5


def first_draw(keys):
    return advance_keys(keys)[1]


def logistic(x):
    return scipy.special.expit(np.float64(x))


def expect_mean(samples, expected):
    """The mean over rows is `expected`, to what chance allows."""
    samples = np.asarray(samples, np.float64)
    error = SIGMAS * np.std(samples, axis=0) / np.sqrt(len(samples))
    assert np.all(np.abs(np.mean(samples, axis=0) - expected) <= error + 1e-9)


@pytest.mark.parametrize("multiplicative", [False, True])
def test_noise_is_normal_with_the_scale_of_each_neuron(multiplicative, getkey):
    std, signal = np.array([0.1, 2.0]), np.array([3.0, -0.5])
    layer = GaussianNoise(std, multiplicative=multiplicative)
    x = jnp.tile(jnp.float32(signal)[None], (4000, 1))
    noise = layer(jr.split(getkey(), 4000), x).output - x
    standard = np.asarray(noise) / (std * signal if multiplicative else std)
    expect_mean(standard, 0)
    expect_mean(standard**2, 1)
    assert scipy.stats.kstest(standard[:, 0], "norm").pvalue > 1e-3
    assert abs(np.corrcoef(standard.T)[0, 1]) < SIGMAS / np.sqrt(4000)


def test_noise_is_drawn_from_the_advanced_chain(getkey):
    keys, x = jr.split(getkey(), 3), jr.normal(getkey(), (3, 2, 2))
    noise = normals(first_draw(keys), 4).reshape(3, 2, 2)
    result = GaussianNoise(0.5)(keys, x)
    np.testing.assert_array_equal(result.output, x + 0.5 * noise)
    assert tree_equal(result.next_state, advance_keys(keys)[0])
    assert result.rollout_extras is None
    np.testing.assert_array_equal(result.regularization_loss, np.zeros(3))


@pytest.mark.parametrize("multiplicative", [False, True])
def test_a_learned_scale_gets_the_reparameterised_gradient(multiplicative, getkey):
    std, keys = np.float32([0.1, 0.7]), jr.split(getkey(), 3)
    x = jr.normal(getkey(), (3, 2))
    layer = GaussianNoise(std, multiplicative=multiplicative, learned=True)
    np.testing.assert_array_equal(layer.log_std, jnp.log(std))
    np.testing.assert_allclose(layer.std, std, rtol=1e-6)

    gradient = eqx.filter_grad(lambda layer: jnp.sum(layer(keys, x).output ** 2))(layer)
    noise = np.float64(normals(first_draw(keys), 2))
    slope = std * noise * (np.float64(x) if multiplicative else 1)
    expected = np.sum(2 * (np.float64(x) + slope) * slope, axis=0)
    np.testing.assert_allclose(gradient.log_std, expected, rtol=1e-5)
    trained = jtu.tree_leaves(partition_trainable(layer)[0])
    assert [leaf.shape for leaf in trained] == [(2,)]


@pytest.mark.parametrize(
    "layer",
    [
        GaussianNoise(0.3),
        GaussianNoise(jnp.array([0.1, 0.2])),
        Dropout(0.3),
        Dropout(jnp.array(0.3)),
    ],
)
def test_what_is_not_learned_does_not_train(layer):
    assert not jtu.tree_leaves(partition_trainable(layer)[0])


@pytest.mark.parametrize(
    "layer",
    [
        GaussianNoise(0.3, learned=True),
        GaussianNoise(0.3, multiplicative=True),
        Dropout(0.5),
        Dropout(0.5, hold="episode"),
    ],
)
def test_inference_passes_the_input_through(layer, getkey):
    x = jr.normal(getkey(), (3, 2))
    silent = eqx.nn.inference_mode(layer)
    result = silent(silent.initialize_state(jr.split(getkey(), 3)), x)
    np.testing.assert_array_equal(result.output, x)


@pytest.mark.parametrize("shape", [(), (4,), (2, 1, 3)])
@pytest.mark.parametrize(
    "layer", [GaussianNoise(0.4), GaussianNoise(0.4, learned=True), Dropout(0.4)]
)
def test_half_precision_rounds_what_was_computed_in_full(layer, shape, getkey):
    x = jr.normal(getkey(), (3, *shape), jnp.bfloat16)
    state = layer.initialize_state(jr.split(getkey(), 3))
    half = layer(state, x).output
    full = layer(state, x.astype(jnp.float32)).output
    assert half.dtype == jnp.bfloat16 and full.dtype == jnp.float32
    np.testing.assert_array_equal(half, full.astype(jnp.bfloat16))


@pytest.mark.parametrize(
    "make",
    [
        lambda **options: GaussianNoise(0.5, **options),
        lambda **options: BernoulliGate(2, **options),
        lambda **options: VariationalBottleneck(1, **options),
        lambda **options: AR1VariationalBottleneck(1, **options),
        lambda **options: BetaSampler(0.1, **options),
    ],
)
def test_an_episode_can_begin_a_new_chain(make, getkey):
    keys = jr.split(getkey(), 3)
    going_on, anew = make(), make(fresh_keys=True)
    state = going_on.initialize_state(keys)
    assert tree_equal(going_on.reset_state(state), state)
    after = jtu.tree_leaves(anew.reset_state(anew.initialize_state(keys)))[0]
    assert np.all(jr.key_data(after) != jr.key_data(keys))


def test_several_scales_are_mapped_over(getkey):
    keys, x = jr.split(getkey(), 3), jr.normal(getkey(), (3, 2))
    scales = jnp.array([0.0, 0.5])
    swept = jax.vmap(lambda std: GaussianNoise(std)(keys, x).output)(scales)
    np.testing.assert_array_equal(swept[0], x)
    np.testing.assert_allclose(swept[1], GaussianNoise(0.5)(keys, x).output, rtol=1e-6)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"std": -0.1}, "std must be at least 0 and finite, got -0.1"),
        ({"std": float("nan")}, "std must be at least 0 and finite, got nan"),
        ({"std": [0.1, -1.0]}, r"at least 0 and finite, got \[0.1, -1.0\]"),
        ({"std": 0.0, "learned": True}, "a learned std must start above 0, got 0.0"),
    ],
)
def test_scales_that_are_none_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        GaussianNoise(**arguments)


def test_a_scale_must_fit_the_features(getkey):
    with pytest.raises(CompositionError, match=r"std \[2\] does not broadcast.*\[3\]"):
        GaussianNoise([0.1, 0.2])(jr.split(getkey(), 2), jnp.ones((2, 3)))
    with pytest.raises(CompositionError, match=r"std \[2, 3\] does not broadcast"):
        GaussianNoise(jnp.ones((2, 3)))(jr.split(getkey(), 2), jnp.ones((2, 3)))


@pytest.mark.parametrize("layer", [GaussianNoise(0.1), Dropout(0.1), BernoulliGate(3)])
def test_integers_are_refused(layer, getkey):
    apply = type(layer).apply
    while hasattr(apply, "__wrapped__"):  # A type checker would speak first.
        apply = apply.__wrapped__
    with pytest.raises(CompositionError, match=r"floating-point.*got int32\[2, 3\]"):
        apply(layer, jr.split(getkey(), 2), jnp.ones((2, 3), jnp.int32))


def test_dropout_silences_a_share_and_scales_the_rest_up(getkey):
    layer, x = Dropout(0.3), jr.normal(getkey(), (2000, 2, 3)) + 5
    out = layer(layer.initialize_state(jr.split(getkey(), 2000)), x).output
    silent = np.asarray(out) == 0
    np.testing.assert_allclose(out, np.where(silent, 0, np.asarray(x) / 0.7), rtol=1e-6)
    bounds = scipy.stats.binom(2000, 0.3).ppf([1e-6, 1 - 1e-6])
    counts = silent.sum(axis=0)
    assert np.all((bounds[0] <= counts) & (counts <= bounds[1]))
    assert np.all(np.abs(np.corrcoef(silent.reshape(2000, 6).T) - np.eye(6)) < 0.12)


@pytest.mark.parametrize("hold", ["step", "episode"])
def test_a_mask_is_held_for_a_step_or_an_episode(hold, getkey):
    layer = Dropout(0.5, hold)
    is_first = jnp.zeros((5, 3), bool).at[0].set(True).at[3, 1].set(True)
    state = layer.initialize_state(jr.split(getkey(), 3))
    out = np.asarray(unroll(layer, state, jnp.ones((5, 3, 40)), is_first).output)
    changes = np.any(out[1:] != out[:-1], axis=-1)
    expected = np.ones((4, 3), bool) if hold == "step" else np.asarray(is_first[1:])
    np.testing.assert_array_equal(changes, expected)
    assert np.any(out[0, 0] != out[0, 1])


def test_dropout_of_nothing_changes_nothing(getkey):
    x = jr.normal(getkey(), (3, 2))
    layer = Dropout(0)
    np.testing.assert_array_equal(
        layer(layer.initialize_state(jr.split(getkey(), 3)), x).output, x
    )


def test_several_rates_are_mapped_over(getkey):
    x = jnp.ones((4, 50))
    state = Dropout(0.5).initialize_state(jr.split(getkey(), 4))
    rates = jnp.array([0.0, 0.5, 0.9])
    swept = jax.vmap(lambda rate: Dropout(rate)(state, x).output)(rates)
    for rate, out in zip(rates.tolist(), swept, strict=True):
        np.testing.assert_allclose(out, Dropout(rate)(state, x).output, rtol=1e-6)
    with pytest.raises(CompositionError, match=r"rate to be one number.*\[3\]"):
        Dropout(rates)(state, x)


@pytest.mark.parametrize("rate", [-0.1, 1, float("nan")])
def test_a_rate_is_a_probability_below_1(rate):
    with pytest.raises(ValueError, match="rate must be at least 0 and below 1, got"):
        Dropout(rate)


def test_a_dropped_fault_has_no_gradient(getkey):
    layer = Dropout(0.5)
    state = layer.initialize_state(jr.split(getkey(), 1))
    silent = np.asarray(layer(state, jnp.ones((1, 20))).output) == 0
    x = jnp.where(silent, jnp.nan, 2.0)
    value, gradient = jax.value_and_grad(lambda x: jnp.sum(layer(state, x).output))(x)
    assert np.isfinite(value)
    np.testing.assert_array_equal(gradient, np.where(silent, 0.0, 2.0))


def gates(probability, **options):
    return BernoulliGate(len(probability), initial_probability=probability, **options)


def test_gates_open_with_their_probability(getkey):
    probability = np.array([0.05, 0.5, 0.9])
    layer, keys = gates(probability), jr.split(getkey(), 3000)
    x = jr.normal(getkey(), (3000, 3)) + 5
    result = layer(keys, x)
    is_open = np.asarray(result.output) != 0
    np.testing.assert_array_equal(result.output, np.where(is_open, x, 0))
    expect_mean(is_open, probability)
    np.testing.assert_allclose(result.metrics["open"], is_open.mean(1), rtol=1e-6)
    np.testing.assert_allclose(logistic(layer.logits), probability, rtol=1e-6)
    trained = jtu.tree_leaves(partition_trainable(layer)[0])
    assert len(trained) == 1 and trained[0] is layer.logits


def test_a_gate_in_inference_is_its_probability(getkey):
    layer = eqx.nn.inference_mode(gates([0.2, 0.7]))
    x = jr.normal(getkey(), (3, 2))
    out = layer(jr.split(getkey(), 3), x).output
    np.testing.assert_allclose(out, np.asarray(x) * [0.2, 0.7], rtol=1e-6)


@pytest.mark.parametrize("gradient", ["straight_through", "relaxed"])
def test_gradients_of_gates_are_the_documented_ones(gradient, getkey):
    probability, temperature = [0.2, 0.5, 0.9], 0.7
    layer = gates(probability, gradient=gradient, temperature=temperature)
    keys, x = jr.split(getkey(), 4), jr.normal(getkey(), (4, 3))
    weights = jr.normal(getkey(), (4, 3))

    def loss(layer, x):
        return jnp.sum(weights * layer(keys, x).output)

    by_layer, by_x = eqx.filter_grad(lambda both: loss(*both))((layer, x))
    noise = jax.vmap(lambda key: jr.logistic(key, (3,)))(first_draw(keys))
    noisy = np.float64(layer.logits) + np.float64(noise)
    if gradient == "relaxed":
        smooth = logistic(noisy / temperature)
        slope = smooth * (1 - smooth) / temperature
    else:
        slope = np.array(probability) * (1 - np.array(probability))
    expected = np.sum(np.float64(weights) * np.float64(x) * slope, axis=0)
    np.testing.assert_allclose(by_layer.logits, expected, rtol=1e-4)
    np.testing.assert_array_equal(by_x, np.asarray(weights) * (noisy > 0))
    assert isinstance(layer.temperature, float)


TARGET = np.array([0.1, 0.3, 1.4, 0.8])
PROBABILITY = np.array([0.2, 0.7, 0.5, 0.9])


def true_gradient():
    """Of the mean over gates `g` of `(g - target)**2`, by the logits."""
    difference = (1 - TARGET) ** 2 - TARGET**2
    return PROBABILITY * (1 - PROBABILITY) * difference


def mean_of_relaxed(temperature):
    """The mean of the relaxed estimate, by a sum over fine noise in float64."""
    noise = np.linspace(-40, 40, 400_001)[:, None]
    density = logistic(noise) * logistic(-noise)
    noisy = np.log(PROBABILITY / (1 - PROBABILITY)) + noise
    slope = logistic(noisy / temperature) * logistic(-noisy / temperature)
    estimate = 2 * ((noisy > 0) - TARGET) * slope / temperature
    return np.sum(estimate * density, axis=0) * (noise[1, 0] - noise[0, 0])


def estimates(layer, keys):
    """The gradient by the logits for each key, for an input of ones."""

    def loss(logits, key):
        tried = eqx.tree_at(lambda layer: layer.logits, layer, logits)
        out = tried(key[None], jnp.ones((1, 4))).output[0]
        return jnp.sum((out - jnp.float32(TARGET)) ** 2)

    return jax.jit(jax.vmap(jax.grad(loss), in_axes=(None, 0)))(layer.logits, keys)


def test_the_mean_relaxed_gradient_points_the_true_way(getkey):
    layer = gates(PROBABILITY, gradient="relaxed", temperature=0.5)
    found = np.asarray(estimates(layer, jr.split(getkey(), 20_000)), np.float64)
    expect_mean(found, mean_of_relaxed(0.5))
    assert np.all(np.sign(found.mean(axis=0)) == np.sign(true_gradient()))
    cosine = np.dot(found.mean(axis=0), true_gradient()) / (
        np.linalg.norm(found.mean(axis=0)) * np.linalg.norm(true_gradient())
    )
    assert cosine > 0.98
    # The bias vanishes with the temperature.
    biases = [np.abs(mean_of_relaxed(t) - true_gradient()).max() for t in (0.1, 0.05)]
    assert biases[0] < 0.02 and 1.8 < biases[0] / biases[1] < 2.2


def test_the_mean_straight_through_gradient_is_off_by_the_curvature(getkey):
    found = estimates(gates(PROBABILITY), jr.split(getkey(), 20_000))
    slope = PROBABILITY * (1 - PROBABILITY)
    expect_mean(found, slope * 2 * (PROBABILITY - TARGET))
    # Half the second derivative, 1, times what the mean gate is away from the middle.
    bias = slope * 2 * (PROBABILITY - 0.5)
    np.testing.assert_allclose(
        slope * 2 * (PROBABILITY - TARGET), true_gradient() + bias
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"size": 0}, "size must be at least 1, got 0"),
        ({"initial_probability": 1.0}, "strictly between 0 and 1, got 1.0"),
        ({"initial_probability": [0.5, 0.0]}, "strictly between 0 and 1"),
        ({"initial_probability": [0.5] * 3}, r"a number or \[2\], got \[3\]"),
        ({"temperature": 0.0}, "temperature must be greater than 0, got 0"),
    ],
)
def test_gates_that_make_no_sense_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        BernoulliGate(**({"size": 2} | arguments))


def test_a_gate_names_the_width_that_it_wants(getkey):
    with pytest.raises(CompositionError, match=r"expected x \[B, 2\], got \[3, 4\]"):
        BernoulliGate(2)(jr.split(getkey(), 3), jnp.ones((3, 4)))


def test_an_unknown_word_is_refused():
    with pytest.raises(ValueError, match="'step' or 'episode', got 'forever'"):
        expect_choice("hold", "forever", ("step", "episode"))


def test_a_swept_temperature_does_not_train():
    layer = BernoulliGate(2, temperature=jnp.array(0.3))
    assert isinstance(layer.temperature, NonTrainable)


@pytest.mark.parametrize("gradient", ["straight_through", "relaxed"])
def test_a_closed_gate_holds_back_what_is_not_finite(gradient, getkey):
    layer, keys = gates([0.5] * 8, gradient=gradient), jr.split(getkey(), 2)
    is_open = np.asarray(layer(keys, jnp.ones((2, 8))).output) == 1
    assert is_open.any() and not is_open.all()
    for fault in (jnp.inf, -jnp.inf, jnp.nan):
        x = jnp.where(is_open, 2.0, fault)

        def loss(logits, x, keys=keys):
            tried = eqx.tree_at(lambda layer: layer.logits, layer, logits)
            return jnp.sum(tried(keys, x).output)

        np.testing.assert_array_equal(layer(keys, x).output, 2.0 * is_open)
        by_logits, by_x = jax.grad(loss, (0, 1))(layer.logits, x)
        np.testing.assert_array_equal(by_x, is_open)
        clean = jax.grad(loss)(layer.logits, jnp.where(is_open, 2.0, 0.0))
        np.testing.assert_allclose(by_logits, clean, rtol=1e-6)


def test_a_rate_of_1_in_a_sweep_has_a_gradient(getkey):
    layer = Dropout(jnp.array(1.0))
    state = layer.initialize_state(jr.split(getkey(), 2))
    value, gradient = jax.value_and_grad(lambda x: jnp.sum(layer(state, x).output))(
        jnp.ones((2, 3))
    )
    assert value == 0 and not np.any(gradient)
