import dataclasses
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import jax.tree_util as jtu
import numpy as np
import pytest

from nnx_ppo_fn import envs
from nnx_ppo_fn.wrappers import EpisodeWrapper, RewardScalingWrapper


@jtu.register_dataclass
@dataclasses.dataclass
class ManyRewards:
    obs: Any
    reward: Any
    done: Any
    info: dict[str, Any]
    metrics: dict[str, Any]


@dataclasses.dataclass(frozen=True)
class TwoObjectives:
    def reset(self, key):
        zero = jnp.asarray(0.0)
        reward = {"forward": jnp.asarray(3.0), "steps": jnp.asarray(2)}
        return ManyRewards(zero, reward, zero, {}, {})

    def step(self, state, action):
        return dataclasses.replace(self.reset(None), obs=state.obs + 1)


def test_scales_rewards_and_nothing_else():
    key = jr.key(0)
    env = RewardScalingWrapper(envs.Pendulum(), 0.1)
    plain = envs.Pendulum()
    state = env.step(env.reset(key), jnp.ones(1))
    expected = plain.step(plain.reset(key), jnp.ones(1))

    np.testing.assert_allclose(state.reward, 0.1 * float(expected.reward), rtol=1e-6)
    np.testing.assert_array_equal(state.obs, expected.obs)
    assert float(expected.reward) != 0.0


def test_scales_every_reward_of_a_tree():
    """Numbers come as floats: an integer reward times 0.5 is not an integer."""
    env = RewardScalingWrapper(TwoObjectives(), 0.5)
    first = env.reset(jr.key(0))
    second = jax.jit(env.step)(first, 0)
    for state in (first, second):
        assert float(state.reward["forward"]) == 1.5
        assert float(state.reward["steps"]) == 1.0
        for reward in state.reward.values():
            assert reward.dtype == jnp.float32 and not reward.weak_type


def test_nests_with_a_time_limit():
    env = RewardScalingWrapper(EpisodeWrapper(envs.CartPole(), 2), 10)
    state = jax.jit(jax.vmap(env.reset))(jr.split(jr.key(0), 3))
    for _ in range(2):
        state = jax.jit(jax.vmap(env.step))(state, jnp.zeros(3, jnp.int32))
    np.testing.assert_array_equal(state.reward, [10.0, 10.0, 10.0])
    assert np.all(state.info["truncated"])
    assert env.max_episode_length == 2 and env.max_len == 2
    assert (env.observation_size, env.action_size, env.discrete) == (4, 2, True)


def test_equal_by_value():
    make = lambda scale: RewardScalingWrapper(envs.CartPole(), scale)
    assert make(0.1) == make(0.1) and hash(make(0.1)) == hash(make(0.1))
    assert make(0.1) != make(0.2)
    assert RewardScalingWrapper(TwoObjectives(), 1).max_episode_length is None


def test_a_state_that_is_no_dataclass():
    class Loose:
        def reset(self, key):
            return SimpleNamespace(obs=0, reward=0.0, done=False, info={}, metrics={})

        def step(self, state, action):
            return state

    with pytest.raises(TypeError, match="dataclass, got a state of type SimpleNamesp"):
        RewardScalingWrapper(Loose(), 1.0).reset(jr.key(0))
