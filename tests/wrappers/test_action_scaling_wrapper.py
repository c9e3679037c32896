import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import jaxtyping
import numpy as np
import pytest

from nnx_ppo_fn import envs
from nnx_ppo_fn.envs import State
from nnx_ppo_fn.wrappers import ActionScalingWrapper, EpisodeWrapper


class Echo(eqx.Module):
    """Shows the action that it was given."""

    observation_size = 2
    action_size = 2
    discrete = False
    max_episode_length = 9

    def reset(self, key):
        return self.step(None, jnp.zeros(2))

    def step(self, state, action):
        return State.create((), action, 0.0, terminated=False, truncated=False)


@pytest.mark.parametrize(
    "action, expected",
    [
        ([-1.0, -1.0], [-3.0, 10.0]),
        ([0.0, 0.0], [-1.0, 15.0]),
        ([1.0, 0.5], [1.0, 17.5]),
        ([-7.0, 7.0], [-3.0, 20.0]),
    ],
)
def test_actions_are_mapped_onto_the_bounds(action, expected):
    env = ActionScalingWrapper(Echo(), low=[-3, 10], high=np.asarray([1.0, 20.0]))
    state = jax.jit(env.step)(None, jnp.asarray(action))
    np.testing.assert_allclose(state.obs, expected, rtol=1e-6)
    assert state.obs.dtype == jnp.float32
    np.testing.assert_array_equal(env.reset(jr.key(0)).obs, [0.0, 0.0])


def test_one_bound_for_all_entries():
    env = ActionScalingWrapper(Echo(), -2.0, 2)
    state = env.step(None, jnp.asarray([0.25, -2.0]))
    np.testing.assert_array_equal(state.obs, [0.5, -2.0])


@pytest.mark.parametrize(
    "action",
    [
        jnp.zeros(2, jnp.int32),
        jnp.ones(2, bool),
        1.0,
        {"arm": jnp.zeros(2)},
        (jnp.zeros(2), jnp.zeros(2)),
    ],
    ids=str,
)
def test_what_is_no_array_of_floats_has_no_bounds(action):
    """A choice would become another choice, or none at all."""
    jaxtyping.config.update("jaxtyping_disable", True)
    try:
        with pytest.raises(TypeError, match="ActionScalingWrapper .* one array of flo"):
            ActionScalingWrapper(Echo(), -2.5, 2.5).step(None, action)
    finally:
        jaxtyping.config.update("jaxtyping_disable", False)


def test_bounds_keep_their_precision():
    """Seven digits do not fit into the two or three of a policy in bfloat16."""
    env = ActionScalingWrapper(Echo(), -2.53, 2.53)
    state = env.step(None, jnp.ones(2, jnp.bfloat16))
    np.testing.assert_array_equal(state.obs, np.full(2, 2.53, np.float32))


def test_bounds_that_do_not_fit_the_action_are_explained():
    env = ActionScalingWrapper(Echo(), [-1.0] * 3, [1.0] * 3)
    with pytest.raises(ValueError, match=r"bounds for an action \[3\], got \[2\]"):
        env.step(None, jnp.ones(2))


def test_equal_by_value():
    one = ActionScalingWrapper(envs.Pendulum(), [-1.0], jnp.ones(1))
    other = ActionScalingWrapper(envs.Pendulum(), np.asarray([-1.0]), [1])
    assert one == other and hash(one) == hash(other)
    assert one != ActionScalingWrapper(envs.Pendulum(), [-1.0], [2.0])


@pytest.mark.parametrize(
    "low, high, match",
    [
        (-np.inf, 1.0, "finite bounds, got low=-inf"),
        ([0.0, 2.0], [1.0, 2.0], "low below high"),
        (1.0, -1.0, "low below high"),
    ],
)
def test_unfit_bounds(low, high, match):
    with pytest.raises(ValueError, match=match):
        ActionScalingWrapper(Echo(), low, high)


def test_the_rest_is_that_of_the_environment_inside():
    env = ActionScalingWrapper(Echo(), -2.0, 2.0)
    assert isinstance(env, envs.DescribedEnv)
    assert (env.observation_size, env.action_size, env.discrete) == (2, 2, False)
    assert env.max_episode_length == 9


def test_wrappers_pass_frames_on():
    pytest.importorskip("PIL")
    env = EpisodeWrapper(ActionScalingWrapper(envs.Pendulum(), -0.5, 0.5), 10)
    assert isinstance(env, envs.RenderableEnv) and env.seconds_per_step == 0.05
    (frame,) = env.render([env.reset(jr.key(0))], height=30, width=40)
    assert frame.shape == (30, 40, 3)
    assert not hasattr(EpisodeWrapper(envs.ValueProbe(), 10), "render")
