import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from nnx_ppo_fn.envs import CartPole


def reference_step(physics, action):
    """One Euler step in float64, from the equations of motion
    [M + m, ml cos a; ml cos a, 4/3 ml^2] [x'', a''] = [F + ml a'^2 sin a, mgl sin a]
    for a cart of mass M = 1 and a pole of mass m = 0.1 and half-length l = 0.5."""
    x, x_dot, angle, angle_dot = np.asarray(physics, np.float64)
    force = 10.0 if action == 1 else -10.0
    sine, cosine = np.sin(angle), np.cos(angle)
    inertia = np.array([[1.1, 0.05 * cosine], [0.05 * cosine, 4 / 3 * 0.1 * 0.5**2]])
    forces = np.array([force + 0.05 * angle_dot**2 * sine, 0.1 * 9.8 * 0.5 * sine])
    x_acceleration, angle_acceleration = np.linalg.solve(inertia, forces)
    rate = np.array([x_dot, x_acceleration, angle_dot, angle_acceleration])
    return np.array([x, x_dot, angle, angle_dot]) + 0.02 * rate


def at(env, physics, time=0):
    """A state with chosen physics, before the step number `time + 1`."""
    return eqx.tree_at(
        lambda state: (state.data.physics, state.data.time),
        env.reset(jr.key(0)),
        (jnp.asarray(physics, jnp.float32), jnp.asarray(time, jnp.int32)),
    )


def test_steps_follow_the_equations_of_motion(getkey):
    env = CartPole()
    scale = jnp.asarray([[1.0, 2.0, 0.2, 2.0]])
    physics = jr.normal(getkey(), (64, 4)) * scale
    actions = jr.randint(getkey(), (64,), 0, 2)
    states = jax.jit(jax.vmap(lambda physics: at(env, physics)))(physics)

    after = jax.jit(jax.vmap(env.step))(states, actions)

    expected = [reference_step(*row) for row in zip(physics, actions, strict=True)]
    np.testing.assert_allclose(after.obs, expected, rtol=2e-6, atol=2e-6)


def test_agrees_with_gymnax(getkey):
    pytest.importorskip("gymnax")
    import gymnax

    theirs, params = gymnax.make("CartPole-v1")
    ours = CartPole()
    state = ours.reset(getkey())
    _, start = theirs.reset_env(getkey(), params)
    x, x_dot, angle, angle_dot = state.obs
    start = start.replace(x=x, x_dot=x_dot, theta=angle, theta_dot=angle_dot)

    with jax.numpy_dtype_promotion("standard"):
        for step in range(20):
            action = int(step == 0)  # Then one way only, until the pole falls.
            state = ours.step(state, action)
            obs, start, reward, terminated, _ = theirs.step_env(
                getkey(), start, action, params
            )
            np.testing.assert_allclose(state.obs, obs, rtol=1e-5, atol=1e-6)
            assert float(state.reward) == float(reward) == 1.0
            assert bool(state.done) == bool(terminated)
            if state.done:
                break
    assert bool(state.info["terminated"])


def test_starts_are_uniform_and_small(getkey):
    obs = jax.jit(jax.vmap(CartPole().reset))(jr.split(getkey(), 500)).obs
    assert np.abs(obs).max() <= 0.05
    # The standard deviation of a uniform distribution is its width over sqrt(12).
    np.testing.assert_allclose(np.std(obs, axis=0), 0.1 / np.sqrt(12), rtol=0.1)


TWELVE_DEGREES = 12 * np.pi / 180


@pytest.mark.parametrize(
    "physics, has_fallen",
    [
        ((0.0, 0.0, 0.0, 0.0), False),
        ((2.39, 0.0, 0.0, 0.0), False),
        ((2.39, 1.0, 0.0, 0.0), True),
        ((-2.39, -1.0, 0.0, 0.0), True),
        ((0.0, 0.0, TWELVE_DEGREES - 1e-3, 0.0), False),
        ((0.0, 0.0, TWELVE_DEGREES - 1e-3, 0.1), True),
        ((0.0, 0.0, 1e-3 - TWELVE_DEGREES, -0.1), True),
    ],
)
def test_limits(physics, has_fallen):
    env = CartPole()
    early = env.step(at(env, physics), 1)
    last = env.step(at(env, physics, time=499), 1)

    assert bool(early.info["terminated"]) == bool(early.done) == has_fallen
    assert not bool(early.info["truncated"])
    # On the last step allowed, falling wins over running out of time.
    assert bool(last.done)
    assert bool(last.info["terminated"]) == has_fallen
    assert bool(last.info["truncated"]) != has_fallen
    assert float(early.reward) == float(last.reward) == 1.0


def test_the_limit_is_a_setting():
    env = CartPole(max_episode_length=2)
    first = env.step(env.reset(jr.key(0)), 0)
    second = env.step(first, 1)
    assert [bool(state.done) for state in (first, second)] == [False, True]
    with pytest.raises(ValueError, match="CartPole needs max_episode_length of at lea"):
        CartPole(max_episode_length=0)


def test_hiding_the_velocities_hides_nothing_else(getkey):
    key = getkey()
    visible, hidden = CartPole(), CartPole(hide_velocity=True)
    shown = visible.step(visible.reset(key), 1)
    partly_shown = hidden.step(hidden.reset(key), 1)

    assert (visible.observation_size, hidden.observation_size) == (4, 2)
    np.testing.assert_array_equal(partly_shown.obs, shown.obs[jnp.array([0, 2])])
    np.testing.assert_array_equal(partly_shown.data.physics, shown.data.physics)
