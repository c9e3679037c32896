import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from nnx_ppo_fn import envs


pytest.importorskip("brax")

FORWARD = jnp.ones(1)


def play(env, length, action=FORWARD):
    """`length` steps without resets: the first state, and all states after it."""

    def step(state, _):
        state = env.step(state, action)
        return state, state

    first = env.reset(jr.key(0))
    return first, jax.lax.scan(step, first, None, length=length)[1]


def test_the_time_limit_truncates_and_shows_its_own_observation():
    """Brax's `fast` speeds up by 0.02 at every step, so it counts them."""
    env = envs.make("brax:fast", max_episode_length=3)
    first, states = play(env, 3)
    np.testing.assert_array_equal(states.info["truncated"], [False, False, True])
    np.testing.assert_array_equal(states.done, [False, False, True])
    assert not np.any(states.info["terminated"])
    np.testing.assert_array_equal(first.obs, [0.0, 0.0])
    np.testing.assert_allclose(states.obs[:, 1], [0.02, 0.04, 0.06], rtol=1e-6)
    assert set(states.info) == {"terminated", "truncated"}


def test_actions_are_clipped(monkeypatch):
    env = envs.make("brax:fast")
    given = []
    step = lambda raw, action: given.append(action) or raw
    monkeypatch.setattr(env.simulated, "step", step)
    for action in (3.0, -0.5):
        env.step(env.reset(jr.key(0)), jnp.asarray([action]))
    np.testing.assert_array_equal(jnp.concatenate(given), [1.0, -0.5])


def test_observations_of_several_parts_stay_mappings():
    env = envs.make("brax:fast", obs_mode="dict_latent_state")
    state = env.reset(jr.key(0))
    assert {name: part.shape for name, part in state.obs.items()} == {
        "state": (2,),
        "latent_pixels/view_0": (12,),
        "latent_pixels/view_1": (12,),
    }
    assert env.observation_size == 26


def test_a_fall_terminates_and_only_the_limit_truncates():
    """Brax's inverted pendulum writes `time_out` at every end, a fall included."""
    env = envs.make("brax:inverted_pendulum", backend="spring")
    assert (env.observation_size, env.action_size, env.discrete) == (4, 1, False)
    assert (env.max_episode_length, env.seconds_per_step) == (1000, 0.02)
    _, states = play(env, 20)
    fall = int(np.argmax(states.info["terminated"]))
    assert 0 < fall and bool(states.done[fall])
    assert not np.any(states.info["truncated"])
    assert float(states.data.raw.info["time_out"][fall]) == 1.0
    # What the last step shows is not a new start.
    assert abs(float(states.obs[fall, 1])) > 0.2


def test_frames_show_the_states(monkeypatch):
    mujoco = pytest.importorskip("mujoco")
    seen = []

    class Renderer:
        """Stands for MuJoCo's, which needs OpenGL."""

        def __init__(self, model, height, width):
            self.shape = (height, width, 3)

        def update_scene(self, data, camera):
            seen.append(data.qpos.tolist())

        def render(self):
            return np.zeros(self.shape, np.uint8)

    monkeypatch.setattr(mujoco, "Renderer", Renderer)
    env = envs.make("brax:reacher")
    shapes = jax.eval_shape(env.reset, jr.key(0))
    state = jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), shapes)
    moved = eqx.tree_at(
        lambda state: state.data.raw.pipeline_state.q, state, np.asarray([0.5, 0, 0, 0])
    )
    frames = env.render([state, moved], height=30, width=40)
    assert [frame.shape for frame in frames] == 2 * [(30, 40, 3)]
    assert seen == [[0, 0, 0, 0], [0.5, 0, 0, 0]]


def test_equal_by_value():
    make = lambda **options: envs.make("brax:fast", **options)
    assert make() == make() and hash(make()) == hash(make())
    one = make(max_episode_length=5, obs_mode="dict_state")
    assert one == make(obs_mode="dict_state", max_episode_length=5)
    assert hash(one) == hash(make(obs_mode="dict_state", max_episode_length=5))
    assert make() == make(max_episode_length=1000)
    assert one != make(max_episode_length=5) and one != make(obs_mode="dict_state")


def test_unfit_options():
    with pytest.raises(ValueError, match="brax:fast needs max_episode_length"):
        envs.make("brax:fast", max_episode_length=0)
    with pytest.raises(TypeError, match="brax:fast needs options that can be hashed"):
        envs.make("brax:fast", obs_mode=["dict_state"])
    with pytest.raises(TypeError, match="brax:fast has no option 'colour'"):
        envs.make("brax:fast", colour="red")
    with pytest.raises(TypeError, match="asymmetric_obs to be True or False, got 'n'"):
        envs.make("brax:fast", asymmetric_obs="n")
    with pytest.raises(envs.UnknownEnvironmentError, match="'brax:fast'"):
        envs.make("brax:fats")
    with pytest.raises(envs.UnknownEnvironmentError, match="mean 'brax:ant'"):
        envs.make("BRAX:ant")


def test_options_of_the_bases_are_options():
    """Those that Brax's environments pass on to `PipelineEnv`, and what is near."""
    with pytest.raises(TypeError, match="ant has no option 'debgu' .did you .*'debug'"):
        envs.make("brax:ant", debgu=True)
    with pytest.raises(TypeError, match="brax:ant needs ctrl_cost_weight to be a num"):
        envs.make("brax:ant", ctrl_cost_weight="0.5")


def test_what_has_no_physics_has_no_picture():
    env = envs.make("brax:fast")
    assert not envs.is_renderable(env)
    with pytest.raises(AttributeError, match="no picture of brax:fast"):
        env.render([])
    assert envs.is_renderable(envs.make("brax:reacher"))


def test_the_first_use_may_be_inside_a_trace():
    def first_observation(key):
        return envs.make("brax:reacher", max_episode_length=7).reset(key).obs

    inside = jax.eval_shape(first_observation, jr.key(0))
    env = envs.make("brax:reacher", max_episode_length=7)
    assert inside.shape == (env.observation_size,)
    leaves = jax.tree.leaves(env.simulated.env.sys)
    assert not any(isinstance(leaf, jax.core.Tracer) for leaf in leaves)
