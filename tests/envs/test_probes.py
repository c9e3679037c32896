"""The known values of the probes, checked by playing them."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from nnx_ppo_fn import envs


GAMMA = 0.9


def play(env, key, policy):
    """One episode: observations `[T + 1, size]`, rewards `[T]`, and the last state.

    `policy` maps all observations so far to an action.
    """
    state = env.reset(key)
    observations, rewards = [np.asarray(state.obs)], []
    for _ in range(10):
        state = env.step(state, policy(observations))
        observations.append(np.asarray(state.obs))
        rewards.append(float(state.reward))
        if state.done:
            return np.stack(observations), np.array(rewards), state
    pytest.fail("The episode does not end.")


def follow_first(observations):
    """Answers what the first number of the first observation says."""
    return int(observations[0][0] > 0)


@pytest.mark.parametrize(
    "name, length, first_value",
    [
        ("value", 1, lambda obs: 1.0),
        ("value-of-observation", 1, lambda obs: obs[0]),
        ("discounting", 2, lambda obs: 0.9),
        ("action", 1, lambda obs: 1.0),
        ("action-of-observation", 1, lambda obs: 1.0),
        ("memory", 4, lambda obs: 0.9**3),
        ("truncation", 4, lambda obs: 10.0),
        ("counting", 5, lambda obs: 10.0),
    ],
)
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_optimal_values(name, length, first_value, seed):
    """The values of all steps satisfy V(s) = r + gamma V(s') under the best policy,
    where the value after the last step counts only if the episode was truncated."""
    env = envs.make(f"probe:{name}")
    observations, rewards, last = play(env, jr.key(seed), follow_first)
    values = np.asarray(env.optimal_value(jnp.asarray(observations), GAMMA), np.float64)

    assert len(rewards) == length == env.max_episode_length
    assert bool(last.info["truncated"]) == (name in ("truncation", "counting"))
    assert bool(last.info["terminated"]) != bool(last.info["truncated"])
    np.testing.assert_allclose(values[0], first_value(observations[0]), rtol=1e-5)
    values[-1] *= bool(last.info["truncated"])
    np.testing.assert_allclose(values[:-1], rewards + GAMMA * values[1:], rtol=1e-5)


@pytest.mark.parametrize("name", ["action", "action-of-observation", "memory"])
def test_the_other_action_is_worse(name):
    env = envs.make(f"probe:{name}")
    worst = lambda observations: 1 - follow_first(observations)
    for seed in range(3):
        _, rewards, _ = play(env, jr.key(seed), worst)
        assert rewards.sum() == -1.0


@pytest.mark.parametrize("name", ["action-of-observation", "memory"])
def test_both_cues_are_as_likely(name):
    """So a policy that cannot see or recall the cue gets 0 in expectation."""
    env = envs.make(f"probe:{name}")
    cues = jax.jit(jax.vmap(env.reset))(jr.split(jr.key(0), 4000)).obs[:, 0]
    np.testing.assert_array_equal(np.unique(cues), [-1.0, 1.0])
    assert abs(float(cues.mean())) < 5 / np.sqrt(4000)


def test_memory_shows_its_cue_once():
    env = envs.make("probe:memory", max_episode_length=6)
    shown = {}
    for seed in range(8):
        observations, _, _ = play(env, jr.key(seed), follow_first)
        shown[float(observations[0, 0])] = observations
    # Both cues came up, and what follows the first observation does not tell which.
    np.testing.assert_array_equal(shown[-1.0][1:], shown[1.0][1:])
    np.testing.assert_allclose(shown[1.0][:, 1], np.arange(7) / 6, rtol=1e-6)


def test_counting_counts():
    observations, _, _ = play(
        envs.make("probe:counting", max_episode_length=3), jr.key(0), follow_first
    )
    np.testing.assert_array_equal(observations[:, 0], [0, 1, 2, 3])


@pytest.mark.parametrize("name, least", [("memory", 2), ("truncation", 1)])
def test_impossible_lengths(name, least):
    envs.make(f"probe:{name}", max_episode_length=least)
    with pytest.raises(ValueError, match=f"at least {least}, got {least - 1}"):
        envs.make(f"probe:{name}", max_episode_length=least - 1)
