"""An environment's methods are traced once for everything that uses them."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np

from nnx_ppo_fn import evaluate, make_mlp_actor_critic, new_training_state, ppo_step
from nnx_ppo_fn.algorithms.config import PPOConfig, TrainConfig
from nnx_ppo_fn.algorithms.environments import reset_all, start_all, step_all
from nnx_ppo_fn.envs import CartPole, State


class Counted:
    """Counts how often Python runs its methods."""

    def __init__(self):
        self.resets = self.steps = 0

    def reset(self, key):
        self.resets += 1
        start = jr.uniform(key, (1,))
        return State.create((), start, 0.0, terminated=False, truncated=False)

    def step(self, state, action):
        self.steps += 1
        return State.create(
            (), state.obs + action, 1.0, terminated=state.obs[0] > 2, truncated=False
        )


def test_methods_are_traced_once():
    env = Counted()
    network = make_mlp_actor_critic(1, 1, [4], [4], key=jr.key(0))
    config = TrainConfig(
        PPOConfig(n_envs=4, rollout_length=2, n_epochs=1, n_minibatches=2)
    )
    state = new_training_state(env, network, config, key=jr.key(1))
    jax.jit(lambda state: ppo_step(env, state, config))(state)
    evaluate(env, network, key=jr.key(2), n_envs=4, max_episode_length=3)
    assert (env.resets, env.steps) == (1, 1)


def test_a_batch_is_one_environment_after_another(getkey):
    env = CartPole()
    keys = jr.split(getkey(), 3)
    states = reset_all(env, keys)
    stepped = step_all(env, states, jnp.array([0, 1, 1]))
    for index, action in enumerate((0, 1, 1)):
        alone = env.step(env.reset(keys[index]), action)
        row = jax.tree.map(lambda leaf, index=index: leaf[index], stepped)
        for one, other in zip(
            jax.tree.leaves(row), jax.tree.leaves(alone), strict=True
        ):
            np.testing.assert_allclose(one, other, atol=1e-6)


def test_starts_are_resets(getkey):
    env, keys = CartPole(), jr.split(getkey(), 3)
    quickly, traced = start_all(env, keys), jax.jit(lambda k: start_all(env, k))(keys)
    expected = reset_all(env, keys)
    for one, other, third in zip(
        *map(jax.tree.leaves, (quickly, traced, expected)), strict=True
    ):
        np.testing.assert_allclose(one, third, atol=1e-7)
        np.testing.assert_allclose(other, third, atol=1e-7)
