"""Environments that start themselves anew, with and without the final observation."""

import dataclasses
import warnings

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from nnx_ppo_fn import make_mlp_actor_critic, new_training_state, ppo_step
from nnx_ppo_fn.algorithms.config import LoggingLevel, PPOConfig, TrainConfig
from nnx_ppo_fn.algorithms.rollout import critic_value, unroll_env
from nnx_ppo_fn.envs import State


LIMIT = 3


@dataclasses.dataclass(frozen=True)
class Restarting:
    """Counts steps, is cut after three, and then shows 0 again at once."""

    keeps: str

    def reset(self, key):
        return self._state(jnp.zeros(1), jnp.array(False))

    def step(self, state, action):
        count = state.info["count"] + 1
        return self._state(count, count[0] >= LIMIT)

    def _state(self, count, truncated):
        shown = jnp.where(truncated, 0, count)
        state = State.create((), shown, 1.0, terminated=False, truncated=truncated)
        kept = {
            "nothing": {},
            "start": {"first_obs": jnp.zeros(1)},
            "end": {"final_observation": count, "first_obs": jnp.zeros(1)},
        }[self.keeps]
        info = {**state.info, "count": shown, **kept}
        return dataclasses.replace(state, info=info)


def config(truncation="bootstrap"):
    return TrainConfig(
        PPOConfig(
            n_envs=2,
            rollout_length=4,
            n_epochs=1,
            n_minibatches=1,
            truncation=truncation,
            logging_level=LoggingLevel.ROLLOUT_STATS,
        )
    )


def network():
    return make_mlp_actor_critic(1, 1, [4], [4], key=jr.key(1), normalize_obs=False)


def test_the_value_is_that_of_the_observation_kept_in_info():
    env, policy = Restarting("end"), network()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        state = new_training_state(env, policy, config(), key=jr.key(0))
    _, rollout = unroll_env(env, policy, state.rollout_state, 4)
    steps = rollout.transitions
    np.testing.assert_array_equal(steps.truncated[:, 0], [False, False, True, False])
    keys = policy.initialize_state(jr.split(jr.key(0), 2))
    expected = critic_value(policy, keys, jnp.full((2, 1), float(LIMIT)))
    np.testing.assert_allclose(steps.bootstrap_value[2], expected, rtol=1e-6)


def test_what_is_hidden_is_masked_and_said_so():
    env = Restarting("start")
    with pytest.warns(UserWarning, match="cannot be bootstrapped") as warned:
        state = new_training_state(env, network(), config(), key=jr.key(0))
        bootstrapped, metrics = jax.jit(ppo_step, static_argnums=0)(
            env, state, config()
        )
    assert len(warned) == 1
    assert metrics["rollout_batch/truncation_rate"] == 0.25
    masked, _ = jax.jit(ppo_step, static_argnums=0)(env, state, config("mask"))
    for one, other in zip(
        jax.tree.leaves(bootstrapped.parameters),
        jax.tree.leaves(masked.parameters),
        strict=True,
    ):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("truncation", ["mask", "nnx_ppo"])
def test_who_asks_for_something_else_gets_it_in_silence(truncation):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        new_training_state(
            Restarting("start"), network(), config(truncation), key=jr.key(0)
        )
