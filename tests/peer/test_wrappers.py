"""Wrappers give the original's episodes, step by step."""

import dataclasses
from typing import Any

import jax.numpy as jnp
import jax.random as jr
import jax.tree_util as jtu
import numpy as np
import pytest
from nnx_ppo.wrappers import episode_wrapper, reward_scaling_wrapper

from nnx_ppo_fn.wrappers import EpisodeWrapper, RewardScalingWrapper
from peer.original import as_released


@jtu.register_dataclass
@dataclasses.dataclass
class WalkState:
    obs: Any
    reward: Any
    done: Any
    info: dict[str, Any]
    metrics: dict[str, Any]

    def replace(self, **changes):
        return dataclasses.replace(self, **changes)


@dataclasses.dataclass(frozen=True)
class Walk:
    """One number that actions push; an episode ends of its own accord beyond `edge`."""

    edge: float
    observation_size: int = 1
    action_size: int = 1
    discrete: bool = False

    def reset(self, key):
        return self._state(jr.uniform(key, (1,)))

    def step(self, state, action):
        return self._state(state.obs + action)

    def _state(self, place):
        done = (place[0] > self.edge).astype(jnp.float32)
        return WalkState(place, 0.1 * place[0], done, {"here": place[0]}, {})


KEY = jr.key(0)
ACTION = jnp.full(1, 0.7)


def episode(env, state, steps):
    """What an agent sees: observations, rewards, ends and time limits."""
    rows = []
    for _ in range(steps):
        state = env.step(state, ACTION)
        seen = state.obs[0], state.reward, state.done, state.info.get("truncated", 0)
        rows.append([float(number) for number in seen])
    return np.array(rows)


def test_the_same_sizes():
    for theirs, ours in (
        (episode_wrapper.EpisodeWrapper, EpisodeWrapper),
        (reward_scaling_wrapper.RewardScalingWrapper, RewardScalingWrapper),
    ):
        theirs, ours = theirs(Walk(2.0), 3), ours(Walk(2.0), 3)
        assert theirs.observation_size == ours.observation_size
        assert theirs.action_size == ours.action_size


def test_scaled_rewards():
    theirs = reward_scaling_wrapper.RewardScalingWrapper(Walk(9.0), 0.3)
    ours = RewardScalingWrapper(Walk(9.0), 0.3)
    with as_released():
        their_start = theirs.reset(KEY)
        expected = episode(theirs, their_start, 20)
    our_start = ours.reset(KEY)
    assert float(our_start.reward) == float(their_start.reward)
    np.testing.assert_array_equal(episode(ours, our_start, 20), expected)


def wrapped(edge, limit):
    """Both episodes from the same start; the original's count is set back to 0."""
    theirs = episode_wrapper.EpisodeWrapper(Walk(edge), limit)
    ours = EpisodeWrapper(Walk(edge), limit)
    with as_released():
        start = theirs.reset(KEY)
        start.info["step_counter"] = 0
        expected = episode(theirs, start, 20)
    inner_key, _ = jr.split(KEY)
    return expected, episode(ours, ours.reset(inner_key), 20)


@pytest.mark.parametrize("edge, limit", [(100.0, 5), (2.5, 9), (100.0, 30)])
def test_episodes_with_a_limit(edge, limit):
    expected, found = wrapped(edge, limit)
    first_end = int(np.argmax(expected[:, 2])) if expected[:, 2].any() else 19
    np.testing.assert_array_equal(found[: first_end + 1], expected[: first_end + 1])


def test_a_fall_on_the_last_step_is_no_time_limit_here():
    expected, _ = wrapped(2.5, 30)
    falls_after = int(np.argmax(expected[:, 2])) + 1
    expected, found = wrapped(2.5, falls_after)
    end = falls_after - 1
    np.testing.assert_array_equal(found[end, :3], expected[end, :3])
    assert expected[end, 3] == 1.0
    assert found[end, 3] == 0.0


def test_the_first_count_is_random_in_the_original_only():
    theirs = episode_wrapper.EpisodeWrapper(Walk(9.0), 10)
    ours = EpisodeWrapper(Walk(9.0), 10)
    asked = EpisodeWrapper(Walk(9.0), 10, random_phase=True)

    def counts(env):
        starts = [env.reset(jr.key(seed)) for seed in range(40)]
        return {int(start.info["step_counter"]) for start in starts}

    with as_released():
        assert counts(theirs) == {0, 1, 2, 3, 4}
    assert counts(ours) == {0}
    assert counts(asked) == set(range(10))
