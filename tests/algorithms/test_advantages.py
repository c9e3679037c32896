import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from nnx_ppo_fn import gae, successor_values
from nnx_ppo_fn.algorithms.advantages import masked_mean, normalize, per_sampler


def column(*numbers, dtype=jnp.float32):
    return jnp.array(numbers, dtype)[:, None]


def estimate(terminated_at=None, truncated_at=None, final_value=0.0):
    """Rewards 1, values 2, final value 2, discount 0.9, lambda 0.8 over four steps."""
    steps = range(4)
    truncated = column(*(t == truncated_at for t in steps), dtype=bool)
    done = truncated | column(*(t == terminated_at for t in steps), dtype=bool)
    rewards, values = column(1, 1, 1, 1), column(2, 2, 2, 2)
    next_values = successor_values(
        values,
        jnp.array([2.0]),
        done,
        truncated,
        jnp.where(truncated, final_value, 0.0),
    )
    advantages = gae(
        rewards, values, next_values, done, discounting_factor=0.9, gae_lambda=0.8
    )
    return advantages[:, 0]


@pytest.mark.parametrize(
    "arguments, expected",
    [
        # Every delta is 1 + 0.9 * 2 - 2 = 0.8, and 0.72 of the next one flows back.
        ({}, [2.089318, 1.79072, 1.376, 0.8]),
        # Step 1: 1 - 2 = -1 and nothing flows back to it; step 0: 0.8 - 0.72.
        ({"terminated_at": 1}, [0.08, -1, 1.376, 0.8]),
        # Step 1: 1 + 0.9 * 5 - 2 = 3.5; step 0: 0.8 + 0.72 * 3.5.
        ({"truncated_at": 1, "final_value": 5.0}, [3.32, 3.5, 1.376, 0.8]),
    ],
)
def test_gae_gives_the_numbers_worked_out_by_hand(arguments, expected):
    np.testing.assert_allclose(estimate(**arguments), expected, atol=1e-6)


def advantages_by_definition(rewards, values, next_values, ends, discount, lambda_):
    """The sum over k of (discount * lambda)^k * delta[t + k], term by term."""
    deltas = rewards + discount * next_values - values
    result = np.zeros_like(deltas)
    for t in range(len(deltas)):
        for k in range(t, len(deltas)):
            result[t] += (discount * lambda_) ** (k - t) * deltas[k]
            if ends[k]:
                break
    return result


@settings(max_examples=30, deadline=None)
@given(
    length=st.just(7),
    seed=st.integers(0, 10_000),
    discount=st.floats(0, 1),
    lambda_=st.floats(0, 1),
)
def test_gae_is_the_discounted_sum_of_deltas(length, seed, discount, lambda_):
    random = np.random.default_rng(seed)
    rewards, values, next_values = random.normal(size=(3, length))
    ends = random.random(length) < 0.3
    expected = advantages_by_definition(
        rewards, values, next_values, ends, discount, lambda_
    )
    actual = gae(
        column(*rewards),
        column(*values),
        column(*next_values),
        column(*ends, dtype=bool),
        discounting_factor=discount,
        gae_lambda=lambda_,
    )
    np.testing.assert_allclose(actual[:, 0], expected, atol=1e-5)


def test_a_step_that_does_not_count_has_no_advantage_and_passes_none_on():
    ones = column(1, 1, 1)
    advantages = gae(
        ones,
        0 * ones,
        0 * ones,
        column(False, False, False, dtype=bool),
        discounting_factor=1.0,
        gae_lambda=1.0,
        valid=column(True, False, True, dtype=bool),
    )
    np.testing.assert_array_equal(advantages[:, 0], [1, 0, 1])


def test_normalizing_counts_the_valid_steps_alone():
    advantages = column(1, 3, 1000)
    valid = column(True, True, False, dtype=bool)
    normalized = normalize(advantages, 1e-3, valid)
    np.testing.assert_allclose(normalized[:2, 0], [-1, 1], rtol=1e-6)


def test_normalizing_does_not_blow_up_what_is_almost_constant():
    noise = column(1e-6, -1e-6)
    valid = jnp.ones_like(noise, bool)
    np.testing.assert_allclose(
        normalize(noise, 0.1, valid)[:, 0], [1e-5, -1e-5], rtol=1e-5
    )
    assert jnp.all(normalize(0 * noise, 0.0, valid) == 0)


def test_the_mean_over_nothing_is_zero():
    assert masked_mean(column(jnp.nan), column(False, dtype=bool)) == 0


def test_combined_advantages_reach_every_sampler():
    combined = per_sampler(
        {"food": column(1, 2), "pain": column(-3, 4)},
        {"arm": 0, "leg": 0},
        combined=True,
    )
    np.testing.assert_array_equal(combined["arm"][:, 0], [-2, 6])
    np.testing.assert_array_equal(combined["leg"][:, 0], [-2, 6])


def test_one_reward_serves_every_sampler_and_several_need_one_each():
    shared = per_sampler(column(1, 2), {"arm": 0, "leg": 0}, combined=False)
    np.testing.assert_array_equal(shared["leg"][:, 0], [1, 2])
    several = {"food": column(1, 2), "pain": column(-3, 4)}
    own = per_sampler(several, {"food": 0, "pain": 0}, combined=False)
    assert own is several
    with pytest.raises(ValueError, match="combine_advantages=True"):
        per_sampler(several, {"arm": 0, "leg": 0}, combined=False)
