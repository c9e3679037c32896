import dataclasses

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import pytest

from helpers import mlp_network
from nnx_ppo_fn import initial_rollout_state, Status, unroll_env
from nnx_ppo_fn.algorithms.faults import _newly_infinite, diagnose
from nnx_ppo_fn.envs import make


@pytest.fixture(scope="module")
def healthy():
    env = make("probe:counting")
    network = mlp_network(jr.key(0), env.observation_size)
    start = initial_rollout_state(env, network, jr.split(jr.key(1), 4))
    return unroll_env(env, network, start, 6)[1]


def spoiled(rollout, *, obs=(), rewards=()):
    """The rollout with NaN at the given steps and environments."""
    transitions = rollout.transitions
    for t, b in obs:
        transitions = eqx.tree_at(
            lambda x: x.obs, transitions, transitions.obs.at[t, b].set(jnp.nan)
        )
    for t, b in rewards:
        transitions = eqx.tree_at(
            lambda x: x.rewards, transitions, transitions.rewards.at[t, b].set(jnp.nan)
        )
    return dataclasses.replace(rollout, transitions=transitions)


@pytest.mark.parametrize(
    "where, status, environment",
    [
        ({}, Status.HEALTHY, -1),
        ({"rewards": [(2, 3), (4, 0)]}, Status.REWARD_NOT_FINITE, 3),
        ({"obs": [(5, 1), (3, 2)]}, Status.OBSERVATION_NOT_FINITE, 2),
        # An observation that is not a number makes the rewards after it so.
        (
            {"obs": [(2, 1)], "rewards": [(2, 1), (3, 1)]},
            Status.OBSERVATION_NOT_FINITE,
            1,
        ),
        ({"obs": [(4, 1)], "rewards": [(3, 2)]}, Status.REWARD_NOT_FINITE, 2),
    ],
)
def test_the_earliest_cause_is_named(healthy, where, status, environment):
    found = diagnose(spoiled(healthy, **where), jnp.float32(0), (), (), 1e-4)
    assert (int(found[0]), int(found[1])) == (status, environment)


@pytest.mark.parametrize(
    "log_ratio, updated, status",
    [
        (1e-3, 1.0, Status.REPLAY_MISMATCH),
        (jnp.nan, 1.0, Status.REPLAY_MISMATCH),
        (0.0, jnp.inf, Status.UPDATE_NOT_FINITE),
    ],
)
def test_what_no_environment_is_to_blame_for(healthy, log_ratio, updated, status):
    before, after = jnp.float32(1), jnp.float32(updated)
    found = diagnose(healthy, jnp.float32(log_ratio), before, after, 1e-4)
    assert (int(found[0]), int(found[1])) == (status, -1)


def test_an_infinite_observation_counts_where_the_network_cannot_take_it(healthy):
    transitions = healthy.transitions
    infinite = eqx.tree_at(
        lambda x: x.obs, transitions, transitions.obs.at[1, 2].set(jnp.inf)
    )
    rollout = dataclasses.replace(healthy, transitions=infinite)
    one, nan = jnp.float32(1), jnp.float32(jnp.nan)
    fine = diagnose(rollout, jnp.float32(0), one, one, 1e-4)
    broken = diagnose(rollout, jnp.float32(0), one, nan, 1e-4)
    assert int(fine[0]) == Status.HEALTHY
    assert [int(x) for x in broken] == [Status.OBSERVATION_NOT_FINITE, 2]


def test_what_follows_the_rollout_counts_as_an_observation(healthy):
    following = healthy.last_observation.at[3].set(jnp.nan)
    rollout = dataclasses.replace(healthy, last_observation=following)
    found = diagnose(rollout, jnp.float32(0), (), (), 1e-4)
    assert [int(x) for x in found] == [Status.OBSERVATION_NOT_FINITE, 3]


def test_the_final_observation_of_a_truncated_episode_is_known_by_its_value(healthy):
    steps = healthy.transitions
    values = jnp.where(steps.truncated, jnp.nan, steps.bootstrap_value)
    only = values.at[:, jnp.array([0, 1, 3])].set(steps.bootstrap_value[:, [0, 1, 3]])
    assert jnp.any(steps.truncated)
    rollout = dataclasses.replace(
        healthy, transitions=dataclasses.replace(steps, bootstrap_value=only)
    )
    found = diagnose(rollout, jnp.float32(0), (), (), 1e-4)
    assert [int(x) for x in found] == [Status.OBSERVATION_NOT_FINITE, 2]


def test_a_constant_may_be_infinite_as_long_as_it_was_so_before(healthy):
    bound = jnp.array([1.0, jnp.inf])
    found = diagnose(healthy, jnp.float32(0), bound, 2 * bound, 1e-4)
    assert int(found[0]) == Status.HEALTHY


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "complex64"])
@pytest.mark.parametrize("bad", [jnp.nan, jnp.inf, -jnp.inf])
def test_every_kind_of_number_is_looked_at(dtype, bad):
    """Among others, and in either part of a complex number."""
    parts = [bad] if dtype != "complex64" else [complex(bad, 1), complex(1, bad)]
    other = {"float": jnp.ones((2, 2)), "count": jnp.arange(3)}
    for number in parts:
        good = {**other, "leaf": jnp.ones(3, dtype)}
        broken = {**other, "leaf": good["leaf"].at[1].set(number)}
        assert _newly_infinite(good, broken)
        assert not _newly_infinite(broken, broken) and not _newly_infinite(broken, good)
    assert not _newly_infinite({"count": jnp.arange(3)}, {"count": jnp.arange(3)})
