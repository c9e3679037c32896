"""What a sampler is made with: wrong arguments are named, numbers of NumPy taken."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import jaxtyping
import numpy as np
import pytest

from nnx_ppo_fn import (
    BernoulliSampler,
    BetaSampler,
    CategoricalSampler,
    MultiCategoricalSampler,
    NonTrainable,
    NormalSampler,
    NormalTanhSampler,
    partition_trainable,
)


KEYS = jr.split(jr.key(0), 3)
SAMPLERS = {
    "normal": NormalSampler,
    "tanh": NormalTanhSampler,
    "beta": BetaSampler,
    "categorical": CategoricalSampler,
    "several": lambda weight, **rest: MultiCategoricalSampler(weight, (2, 2), **rest),
    "switches": BernoulliSampler,
}


@pytest.fixture(autouse=True)
def no_type_checker():
    """As for most users: no type checker speaks before the library does."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


COEFFICIENTS = [
    *((name, "entropy_weight") for name in SAMPLERS),
    ("normal", "min_std"),
    ("normal", "std_scale"),
    ("tanh", "min_std"),
    ("tanh", "std_scale"),
    ("beta", "min_concentration"),
]


@pytest.mark.parametrize(("sampler", "option"), COEFFICIENTS)
def test_a_coefficient_is_one_finite_number(sampler, option):
    def make(value):
        rest = {} if option == "entropy_weight" else {option: value}
        weight = value if option == "entropy_weight" else 0.1
        return SAMPLERS[sampler](weight, **rest)

    for wrong in ("0.1", None, [0.1], True, 1j):
        with pytest.raises(TypeError) as caught:
            make(wrong)
        expected = f"{option} must be a number or an array, got {wrong!r}"
        assert str(caught.value) == expected
    for wrong in (math.inf, -math.inf, math.nan):
        for given in (wrong, jnp.float32(wrong), NonTrainable(jnp.float32(wrong))):
            with pytest.raises(ValueError, match=f"{option} must be .*, got {wrong}"):
                make(given)
    if option != "entropy_weight":
        # The last of them is 0 in float32.
        for wrong in (0, -1.0, 1e-60):
            for given in (wrong, jnp.float32(wrong)):
                with pytest.raises(ValueError, match=f"{option} must be greater than"):
                    make(given)
    assert eqx.tree_equal(make(np.float32(0.5)), make(0.5))
    with pytest.raises(ValueError, match=f"{option} to be one number, got .* \\[2\\]"):
        make(jnp.array([0.1, 0.2]))(KEYS, jnp.ones((3, 4)))


def test_a_sweep_passes_the_checks():
    def spread(min_std):
        sampler = NormalSampler(0.1, min_std, bounds=(-min_std, min_std))
        return sampler(KEYS, jnp.ones((3, 2))).metrics["sigma"]

    np.testing.assert_allclose(
        np.diff(jax.vmap(spread)(jnp.array([0.25, 0.75])), axis=0), [[0.5] * 3]
    )


@pytest.mark.parametrize("sampler", SAMPLERS)
def test_a_flag_is_true_or_false(sampler):
    for flag in ("inference", "fresh_keys"):
        with pytest.raises(TypeError, match=f"{flag} must be True or False, got 'no'"):
            SAMPLERS[sampler](0.1, **{flag: "no"})


LOG_STD = np.array([0.5, -1.0], np.float32)


@pytest.mark.parametrize("kind", [NormalSampler, NormalTanhSampler])
def test_a_log_std_is_a_row_of_numbers(kind):
    right = kind(0.1, log_std=jnp.asarray(LOG_STD))
    for same in (
        LOG_STD,
        LOG_STD.astype(np.float64),
        LOG_STD.tolist(),
        tuple(LOG_STD.tolist()),
        jnp.asarray(LOG_STD, jnp.bfloat16),
    ):
        sampler = kind(0.1, log_std=same)
        assert eqx.tree_equal(sampler, right)
        assert len(jax.tree.leaves(partition_trainable(sampler)[0])) == 1
        held = kind(0.1, log_std=NonTrainable(same))
        assert eqx.tree_equal(held, kind(0.1, log_std=NonTrainable(right.log_std)))
    assert kind(0.1, log_std=[0, 1]).log_std.dtype == jnp.float32
    for wrong in (
        0.0,
        "a",
        [],
        [[0.0, 1.0]],
        [0.0, None],
        [True],
        jnp.ones(2, complex),
    ):
        for given in (wrong, NonTrainable(wrong)):
            with pytest.raises(ValueError, match="log_std to be one number per comp"):
                kind(0.1, log_std=given)


def test_bounds_are_a_pair_of_numbers_or_of_rows():
    for wrong in (
        5,
        "ab",
        (0,),
        (0, 1, 2),
        {"low": 0, "high": 1},
        (True, 2),
        (1, -1),
        (0.0, 0.0),
        ([0, 2], [1, 1]),
        (0, math.nan),
        (None, -math.inf),
        ([0, [1]], 2),
        ([0, 0], [1, 1, 1]),
        (np.zeros((1, 2)), 1),
        (jnp.ones(2), jnp.zeros(2)),
        (NonTrainable(jnp.ones(2)), 1),
        (1j, 2),
    ):
        with pytest.raises(ValueError, match=r"expected bounds \(low, high\)"):
            NormalSampler(0.1, bounds=wrong)


@pytest.mark.parametrize(
    ("bounds", "same"),
    [
        ((None, 0.5), (-math.inf, 0.5)),
        ((-0.5, None), (-0.5, math.inf)),
        (([-1, -1], [1, 1]), (-1, 1)),
        ((np.float32(-1), np.array([1.0, 1.0])), (-1, 1)),
        (jnp.array([[-1, -1], [1, 1]]), (-1, 1)),
    ],
)
def test_bounds_may_be_open_and_of_any_kind(bounds, same):
    x = 2 * jr.normal(jr.key(1), (3, 4))
    one, other = (NormalSampler(0.1, bounds=each)(KEYS, x) for each in (bounds, same))
    np.testing.assert_array_equal(one.output.action, other.output.action)


def test_sizes_are_integers():
    right = MultiCategoricalSampler(0.1, (2, 3))
    for same in ([2, 3], np.array([2, 3])):
        assert eqx.tree_equal(MultiCategoricalSampler(0.1, same), right)
    for wrong in ((2.0, 2.0), (2, "3"), "23", (True, 3), (2, None)):
        with pytest.raises(TypeError, match=r"sizes\[[01]\] must be an integer, got"):
            MultiCategoricalSampler(0.1, wrong)
    for wrong in (4, None):
        with pytest.raises(TypeError, match="expected sizes, one for each choice"):
            MultiCategoricalSampler(0.1, wrong)
