"""In every family of environments a time limit is seen as one, and valued as one."""

import dataclasses

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from nnx_ppo_fn import (
    CategoricalSampler,
    NormalTanhSampler,
    PPOAdapter,
    Sequential,
    Stateless,
)
from nnx_ppo_fn.algorithms.config import LoggingLevel, PPOConfig, TrainConfig
from nnx_ppo_fn.algorithms.rollout import unroll_env
from nnx_ppo_fn.algorithms.step import new_training_state, ppo_step
from nnx_ppo_fn.envs import make


LIMIT = 3
NAMES = [
    "cartpole",
    "gymnax:CartPole-v1",
    "brax:fast",
    "playground:CartpoleBalance",
]
CONFIG = TrainConfig(
    PPOConfig(
        n_envs=2,
        rollout_length=LIMIT + 1,
        n_epochs=1,
        n_minibatches=1,
        learning_rate=0.0,
        logging_level=LoggingLevel.ROLLOUT_STATS,
    )
)


@dataclasses.dataclass(frozen=True)
class CountingSteps:
    """Shows how many steps an episode of another environment has had."""

    env: object

    def reset(self, key):
        return self._counted(self.env.reset(key), jnp.zeros(1))

    def step(self, state, action):
        return self._counted(self.env.step(state, action), state.obs + 1)

    def _counted(self, state, count):
        return dataclasses.replace(state, obs=count)


def valued_by_the_count(env):
    """A network whose critic's value is the number of steps that it is shown."""
    sampler = CategoricalSampler(0.0) if env.discrete else NormalTanhSampler(0.0)
    parameters = env.action_size * (1 if env.discrete else 2)

    def indifferent(x):
        return jnp.zeros((len(x), parameters))

    def count(x):
        return x

    policy = Sequential([Stateless(indifferent), sampler])
    return PPOAdapter(policy, value=Stateless(count))


@pytest.mark.parametrize("name", NAMES)
def test_a_limit_is_counted_and_valued_by_the_last_observation(name):
    inside = make(name, max_episode_length=LIMIT)
    env, network = CountingSteps(inside), valued_by_the_count(inside)
    state = new_training_state(env, network, CONFIG, key=jr.key(0))

    @jax.jit
    def both(state):
        _, metrics = ppo_step(env, state, CONFIG)
        _, rollout = unroll_env(env, network, state.rollout_state, LIMIT + 1)
        return metrics, rollout.transitions

    metrics, steps = both(state)
    np.testing.assert_allclose(metrics["rollout_batch/truncation_rate"], 0.25)
    np.testing.assert_array_equal(steps.obs[:, 0, 0], [0, 1, 2, 0])
    np.testing.assert_array_equal(steps.truncated[:, 0], [False, False, True, False])
    # Not 0, of the next episode's start, nor 2, of the step itself. The last row is
    # what follows the rollout.
    np.testing.assert_array_equal(steps.bootstrap_value[:, 0], [0, 0, LIMIT, 1])
