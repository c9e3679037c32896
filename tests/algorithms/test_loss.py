import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import jax.tree_util as jtu
import numpy as np
import pytest

from helpers import mlp_network
from nnx_ppo_fn import (
    CategoricalSampler,
    Dense,
    initial_rollout_state,
    LoggingLevel,
    Parallel,
    partition_trainable,
    ppo_loss,
    PPOAdapter,
    PPOConfig,
    replay,
    Sequential,
    Stateless,
    unroll_env,
)
from nnx_ppo_fn.algorithms.loss import clipped_surrogate, log_ratio
from nnx_ppo_fn.envs import make


CONFIG = PPOConfig(n_envs=6, n_minibatches=1, logging_level=LoggingLevel.ALL)


@pytest.fixture(scope="module")
def recorded():
    """A rollout of truncated episodes, and a network whose weights have moved since."""
    env = make("probe:counting")
    network = mlp_network(jr.key(0), env.observation_size)
    start = initial_rollout_state(env, network, jr.split(jr.key(1), 6))
    _, rollout = jax.jit(lambda s: unroll_env(env, network, s, 11))(start)
    parameters, rest = partition_trainable(network)
    moved = eqx.combine(jtu.tree_map(lambda p: 3 * p + 0.3, parameters), rest)
    return network, moved, rollout


def loss_in_float64(network, rollout, config):
    """The loss as a loop over steps and environments, in NumPy."""
    replayed = replay(network, rollout)
    steps = jax.tree.map(lambda leaf: np.asarray(leaf, np.float64), rollout.transitions)
    new = np.asarray(replayed.output.loglikelihoods, np.float64)
    values = np.asarray(replayed.output.value_estimates, np.float64)
    silent = eqx.nn.inference_mode(network)
    last_value = np.asarray(
        silent(replayed.next_state, rollout.last_observation).output.value_estimates,
        np.float64,
    )
    length, batch = new.shape
    advantages = np.zeros((length, batch))
    for b in range(batch):
        following = 0.0
        for t in reversed(range(length)):
            after = values[t + 1, b] if t + 1 < length else last_value[b]
            if steps.truncated[t, b]:
                after = steps.bootstrap_value[t, b]
            if steps.done[t, b]:
                following = 0.0
                after = after if steps.truncated[t, b] else 0.0
            delta = steps.rewards[t, b] + config.discounting_factor * after
            delta -= values[t, b]
            following = (
                delta + config.discounting_factor * config.gae_lambda * following
            )
            advantages[t, b] = following
    targets = values + advantages
    advantages = (advantages - advantages.mean()) / advantages.std()
    ratio = np.exp(new - steps.network_output.loglikelihoods)
    clipped = np.clip(ratio, 1 - config.clip_range, 1 + config.clip_range)
    actor = -np.minimum(ratio * advantages, clipped * advantages).mean()
    critic = 0.5 * np.square(values - targets).mean()
    regularization = np.asarray(replayed.regularization_loss, np.float64).mean()
    return actor + config.critic_loss_weight * critic + regularization


def test_the_loss_is_the_formula(recorded):
    _, moved, rollout = recorded
    loss, metrics = ppo_loss(moved, rollout, CONFIG)
    assert jnp.sum(rollout.transitions.truncated) > 0
    assert metrics["losses/clipping_fraction"] > 0
    np.testing.assert_allclose(
        loss, loss_in_float64(moved, rollout, CONFIG), rtol=1e-4, atol=1e-5
    )


def test_with_unchanged_weights_every_ratio_is_one(recorded):
    network, moved, rollout = recorded
    _, metrics = ppo_loss(network, rollout, CONFIG)
    assert metrics["replay/log_ratio"] < 1e-5
    assert metrics["losses/clipping_fraction"] == 0
    assert ppo_loss(moved, rollout, CONFIG)[1]["replay/log_ratio"] > 1e-2


def test_the_rollouts_own_values_give_the_same_loss_before_any_update(recorded):
    network, _, rollout = recorded
    from_rollout = dataclasses.replace(CONFIG, advantages_from="rollout")
    np.testing.assert_allclose(
        ppo_loss(network, rollout, CONFIG)[0],
        ppo_loss(network, rollout, from_rollout)[0],
        rtol=1e-5,
    )


@pytest.mark.parametrize("truncation, equal", [("mask", True), ("bootstrap", False)])
def test_only_masking_ignores_what_a_truncated_step_says(recorded, truncation, equal):
    _, moved, rollout = recorded
    config = dataclasses.replace(CONFIG, truncation=truncation)
    steps = rollout.transitions
    changed = eqx.tree_at(
        lambda r: (r.transitions.rewards, r.transitions.bootstrap_value),
        rollout,
        (
            jnp.where(steps.truncated, 100.0, steps.rewards),
            jnp.where(steps.truncated, -50.0, steps.bootstrap_value),
        ),
    )
    before, after = (ppo_loss(moved, r, config)[0] for r in (rollout, changed))
    assert bool(jnp.allclose(before, after)) == equal


def test_the_original_treatment_of_truncation_counts_an_advantage_of_zero(recorded):
    _, moved, rollout = recorded
    config = dataclasses.replace(
        CONFIG,
        truncation="nnx_ppo",
        normalize_advantages=False,
        critic_loss_weight=0.0,
    )
    masked = dataclasses.replace(config, truncation="mask")
    counted = rollout.transitions.truncated.size
    kept = counted - int(jnp.sum(rollout.transitions.truncated))
    actor, masked_actor = (
        ppo_loss(moved, rollout, c)[1]["losses/actor"] for c in (config, masked)
    )
    np.testing.assert_allclose(actor * counted, masked_actor * kept, rtol=1e-4)


def test_a_ratio_outside_the_range_has_no_gradient_where_it_already_pays():
    ones = jnp.ones((1, 1))

    def slope(log_ratio_, advantage):
        return jax.grad(
            lambda new: clipped_surrogate(
                new, 0 * ones, advantage * ones, clip_range=0.2, valid=ones > 0
            )
        )(log_ratio_ * ones)[0, 0]

    assert slope(0.5, 1.0) == 0 and slope(-0.5, -1.0) == 0
    np.testing.assert_allclose(slope(0.5, -1.0), np.exp(0.5), rtol=1e-6)
    np.testing.assert_allclose(slope(0.0, 2.0), -2.0, rtol=1e-6)


def test_the_log_ratio_is_relative_for_large_log_likelihoods_and_keeps_nan():
    old = jnp.array([[-100.0, -0.5]])
    assert log_ratio(old + jnp.array([[1.0, 0.0]]), old) == pytest.approx(0.01)
    assert log_ratio(old + jnp.array([[0.0, 0.2]]), old) == pytest.approx(0.2)
    assert jnp.isnan(log_ratio(old.at[0, 0].set(jnp.nan), old))


def test_several_rewards_have_a_critic_each_and_add_up():
    """Combined advantages are those of the summed reward and the summed critic."""
    actor, food, pain = jr.split(jr.key(0), 3)
    action = Sequential([Dense(1, 2, key=actor), CategoricalSampler(0.0)])
    values = Parallel(food=Dense(1, 1, key=food), pain=Dense(1, 1, key=pain))
    several, summed = (
        ppo_loss(network, roll_out(env, network), config)
        for env, network, config in (
            (
                TwoRewards(summed=False),
                PPOAdapter(action, values),
                dataclasses.replace(CONFIG, combine_advantages=True),
            ),
            (
                TwoRewards(summed=True),
                PPOAdapter(action, Sequential([values, Stateless(add_values)])),
                CONFIG,
            ),
        )
    )
    assert set(several[1]["losses/critic"]) == {"food", "pain"}
    np.testing.assert_allclose(
        several[1]["losses/actor"], summed[1]["losses/actor"], atol=1e-6
    )
    assert jnp.abs(summed[1]["losses/actor"]) > 1e-9


def roll_out(env, network):
    start = initial_rollout_state(env, network, jr.split(jr.key(1), 6))
    return unroll_env(env, network, start, 7)[1]


def add_values(values):
    return values["food"] + values["pain"]


class TwoRewards(eqx.Module):
    """The counting probe, rewarding with food and punishing with pain."""

    summed: bool

    def reset(self, key):
        return self._rewarded(make("probe:counting").reset(key))

    def step(self, state, action):
        state = eqx.tree_at(lambda s: s.reward, state, jnp.float32(0))
        return self._rewarded(make("probe:counting").step(state, action))

    def _rewarded(self, state):
        food, pain = state.reward, -0.1 * state.obs[0]
        reward = food + pain if self.summed else {"food": food, "pain": pain}
        return eqx.tree_at(lambda s: s.reward, state, reward)


def test_a_rollout_without_steps_has_no_loss(recorded):
    network, _, rollout = recorded
    is_first, transitions = jtu.tree_map(
        lambda leaf: leaf[:0], (rollout.is_first, rollout.transitions)
    )
    empty = dataclasses.replace(rollout, is_first=is_first, transitions=transitions)
    with pytest.raises(ValueError, match=r"at least one step .* is_first \[0, 6\]"):
        ppo_loss(network, empty, CONFIG)
