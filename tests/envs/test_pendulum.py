import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from nnx_ppo_fn.envs import Pendulum


def reference_step(angle, speed, action):
    """Gym's Pendulum-v1 in float64: (angle, speed, reward) after one step."""
    torque = 2.0 * np.clip(np.float64(action), -1, 1)
    deviation = np.arctan2(np.sin(np.float64(angle)), np.cos(np.float64(angle)))
    reward = -(deviation**2 + 0.1 * np.float64(speed) ** 2 + 0.001 * torque**2)
    speed = np.clip(speed + 0.05 * (15 * np.sin(angle) + 3 * torque), -8, 8)
    return angle + 0.05 * speed, speed, reward


def test_steps_follow_the_reference(getkey):
    env = Pendulum()
    angles = jr.uniform(getkey(), (64,), minval=-9.0, maxval=9.0)
    speeds = jr.uniform(getkey(), (64,), minval=-8.0, maxval=8.0)
    # Beyond [-1, 1], where the torque must saturate.
    actions = jr.uniform(getkey(), (64, 1), minval=-1.5, maxval=1.5)

    def at(angle, speed):
        where = lambda state: (state.data.angle, state.data.speed)
        return eqx.tree_at(where, env.reset(jr.key(0)), (angle, speed))

    states = jax.jit(jax.vmap(at))(angles, speeds)
    after = jax.jit(jax.vmap(env.step))(states, actions)

    angle, speed, reward = reference_step(
        *(np.asarray(x, np.float64) for x in (angles, speeds, actions[:, 0]))
    )
    expected = np.stack([np.cos(angle), np.sin(angle), speed], axis=-1)
    np.testing.assert_allclose(after.obs, expected, atol=5e-6)
    np.testing.assert_allclose(after.reward, reward, atol=2e-5)


def test_starts_point_anywhere(getkey):
    obs = np.asarray(jax.jit(jax.vmap(Pendulum().reset))(jr.split(getkey(), 500)).obs)
    np.testing.assert_allclose(np.hypot(obs[:, 0], obs[:, 1]), 1.0, atol=1e-6)
    np.testing.assert_allclose(obs[:, :2].mean(axis=0), 0.0, atol=0.12)
    assert 0.95 < np.abs(obs[:, 2]).max() <= 1.0


def test_is_truncated_and_never_terminates():
    env = Pendulum()
    state = env.reset(jr.key(0))

    def step(state, _):
        state = env.step(state, jnp.ones(1))
        return state, state.info

    _, info = jax.lax.scan(step, state, None, length=200)
    np.testing.assert_array_equal(info["truncated"], np.arange(1, 201) == 200)
    assert not np.any(info["terminated"])
    with pytest.raises(ValueError, match="Pendulum needs max_episode_length"):
        Pendulum(max_episode_length=0)
