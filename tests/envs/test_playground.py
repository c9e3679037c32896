import os
import subprocess

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import jax.tree_util as jtu
import numpy as np
import pytest

from nnx_ppo_fn import envs


playground = pytest.importorskip("mujoco_playground")
config_dict = pytest.importorskip("ml_collections.config_dict")


class Counter(playground.MjxEnv):
    """Counts its steps and has no physics.

    The observation has two parts. Each step is rewarded with its number, and writes
    into the state that it is given, as Playground's do, and in another dtype. The
    episode ends at step `ends_at`, and claims that this is a time limit.
    """

    def reset(self, rng):
        return playground.State(
            data=jnp.zeros((), jnp.int32),
            obs={"count": jnp.zeros(1), "start": jr.uniform(rng, (2, 3))},
            reward=jnp.zeros(()),
            done=jnp.zeros(()),
            metrics={"reward/count": jnp.zeros(())},
            info={"rng": rng, "time_out": jnp.zeros(())},
        )

    def step(self, state, action):
        count = state.data + 1
        done = jnp.where(count == self._config.ends_at, 1.0, 0.0)
        state.metrics["reward/count"] = count
        state.info["time_out"] = done
        obs = {"count": count[None].astype(float), "start": state.obs["start"]}
        return state.replace(data=count, obs=obs, reward=count * 1.0, done=done)

    xml_path = ""
    action_size = 1
    mj_model = None
    mjx_model = None


def default_config():
    return config_dict.create(
        ctrl_dt=0.02,
        sim_dt=0.01,
        episode_length=5,
        action_repeat=1,
        ends_at=100,
        nested=config_dict.create(entry=1),
    )


playground.dm_control_suite.register_environment("Counter", Counter, default_config)


def play(length, **options):
    """`length` steps without resets: the first state, and all states after it."""
    env = envs.make("playground:Counter", **options)

    def step(state, _):
        state = env.step(state, jnp.ones(1))
        return state, state

    first = env.reset(jr.key(0))
    return first, jax.lax.scan(step, first, None, length=length)[1]


def test_the_time_limit_truncates_and_shows_its_own_observation():
    first, states = play(5)
    np.testing.assert_array_equal(states.info["truncated"], np.arange(1, 6) == 5)
    np.testing.assert_array_equal(states.done, np.arange(1, 6) == 5)
    assert not np.any(states.info["terminated"])
    np.testing.assert_array_equal(states.obs["count"][:, 0], [1, 2, 3, 4, 5])
    np.testing.assert_array_equal(states.metrics["reward/count"], [1, 2, 3, 4, 5])
    assert first.obs["start"].shape == (2, 3)
    assert envs.make("playground:Counter").observation_size == 7
    assert set(states.info) == {"terminated", "truncated"}


def test_an_end_terminates_whatever_the_time_out_says():
    """And on the last step allowed, ending wins."""
    _, states = play(3, ends_at=2, max_episode_length=3)
    np.testing.assert_array_equal(states.info["terminated"], [False, True, False])
    np.testing.assert_array_equal(states.info["truncated"], [False, False, True])
    np.testing.assert_array_equal(states.data.raw.info["time_out"], [0, 1, 0])

    _, states = play(2, ends_at=2, max_episode_length=2)
    np.testing.assert_array_equal(states.info["terminated"], [False, True])
    assert not np.any(states.info["truncated"])


def test_repeated_actions_are_one_step():
    """Rewards 1 + 2, 3 + 4 and 5 + 6; five steps of the simulation are three here."""
    env = envs.make("playground:Counter", action_repeat=2)
    assert (env.max_episode_length, env.seconds_per_step) == (3, 0.04)
    _, states = play(3, action_repeat=2)
    np.testing.assert_array_equal(states.reward, [3, 7, 11])
    np.testing.assert_array_equal(states.obs["count"][:, 0], [2, 4, 6])
    np.testing.assert_array_equal(states.info["truncated"], [False, False, True])


def test_the_configuration_knows_the_time_limit():
    env = envs.make("playground:Counter", max_episode_length=4, action_repeat=3)
    assert env.max_episode_length == 4
    assert env.simulated.env._config.episode_length == 12
    assert envs.make("playground:Counter", episode_length=8).max_episode_length == 8


def test_steps_leave_the_state_before_them_alone():
    env = envs.make("playground:Counter")
    first = env.reset(jr.key(0))
    with jax.disable_jit():
        env.step(first, jnp.ones(1))
    assert float(first.data.raw.metrics["reward/count"]) == 0.0
    assert first.data.raw.metrics["reward/count"].dtype == jnp.float32


def test_equal_by_value():
    make = lambda **options: envs.make("playground:Counter", **options)
    assert make() == make() and hash(make()) == hash(make())
    one = make(ends_at=3, ctrl_dt=0.05)
    assert one == make(ctrl_dt=0.05, ends_at=3)
    assert hash(one) == hash(make(ctrl_dt=0.05, ends_at=3))
    assert one != make(ends_at=3) and one.seconds_per_step == 0.05


def test_unfit_options():
    make = lambda **options: envs.make("playground:Counter", **options)
    with pytest.raises(TypeError, match="'ctrl_td' .did you mean 'ctrl_dt'"):
        make(ctrl_td=0.1)
    with pytest.raises(TypeError, match="'nested.entry'"):
        make(**{"nested.enrty": 2})
    with pytest.raises(ValueError, match="max_episode_length of at least 1, got 0"):
        make(max_episode_length=0)
    with pytest.raises(ValueError, match="action_repeat of at least 1, got 0"):
        make(action_repeat=0)
    with pytest.raises(
        TypeError, match="Counter needs ctrl_dt to be a number, got 's'"
    ):
        make(ctrl_dt="s")
    with pytest.raises(ValueError, match="max_episode_length of at least 1, got 0"):
        make(episode_length=0)
    assert make(**{"nested.entry": 2}).simulated.env._config.nested.entry == 2


def test_unknown_ids_get_the_nearest_one():
    with pytest.raises(envs.UnknownEnvironmentError, match="'playground:CheetahRun'"):
        envs.make("playground:CheetaRun")


def test_a_failed_download_is_one_line(monkeypatch):
    def load(*arguments, **options):
        raise subprocess.CalledProcessError(128, ["git", "clone"])

    monkeypatch.setattr(playground.registry, "load", load)
    with pytest.raises(envs.MissingAssetsError) as caught:
        envs.make("playground:Counter", ends_at=77)
    message = str(caught.value)
    assert "mujoco_menagerie" in message and "git" in message and "\n" not in message
    assert isinstance(caught.value, ImportError)


def test_the_cart_pole_keeps_its_form():
    """Nothing is compiled: shapes alone, which are Playground's."""
    env = envs.make("playground:CartpoleBalance")
    assert (env.observation_size, env.action_size, env.discrete) == (5, 1, False)
    assert (env.max_episode_length, env.seconds_per_step) == (1000, 0.01)
    first = jax.eval_shape(env.reset, jr.key(0))
    second = jax.eval_shape(env.step, first, jax.ShapeDtypeStruct((1,), jnp.float32))
    signature = lambda tree: jtu.tree_map(
        lambda leaf: (leaf.shape, leaf.dtype, leaf.weak_type), tree
    )
    assert signature(first) == signature(second)
    assert first.obs.shape == (5,) and "reward/upright" in first.metrics
    if jax.default_backend() == "cpu":
        assert env.simulated.env._config.impl == "jax"


def upright(env):
    """A state with everything 0, for which nothing has to be compiled."""

    def zeros(leaf):
        is_key = jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
        return jr.key(0) if is_key else np.zeros(leaf.shape, leaf.dtype)

    return jtu.tree_map(zeros, jax.eval_shape(env.reset, jr.key(0)))


class Renderer:
    """Stands for MuJoCo's, which needs OpenGL."""

    seen = []

    def __init__(self, model, height, width):
        assert model.vis.global_.offheight >= height
        self.shape = (height, width, 3)

    def update_scene(self, data, camera, scene_option=None):
        self.seen.append((data.qpos.tolist(), camera))

    def render(self):
        return np.zeros(self.shape, np.uint8)

    def close(self):
        pass


def test_frames_show_the_states_and_nothing_is_printed(monkeypatch, capfd):
    mujoco = pytest.importorskip("mujoco")
    monkeypatch.setattr(mujoco, "Renderer", Renderer)
    env = envs.make("playground:CartpoleBalance")
    state = upright(env)
    moved = state.data.raw.tree_replace({"data.qpos": np.asarray([0.5, 0.1])})
    after = eqx.tree_at(lambda state: state.data.raw, state, moved)
    frames = env.render([state, after], height=700, width=900)
    assert [frame.shape for frame in frames] == 2 * [(700, 900, 3)]
    assert Renderer.seen == [([0.0, 0.0], "fixed"), ([0.5, 0.1], "fixed")]
    assert capfd.readouterr() == ("", "")
    assert isinstance(env, envs.RenderableEnv)


def test_without_opengl_the_error_says_what_to_do(monkeypatch):
    mujoco = pytest.importorskip("mujoco")

    def renderer(*arguments, **options):
        raise mujoco.FatalError("an OpenGL platform library has not been loaded")

    monkeypatch.setattr(mujoco, "Renderer", renderer)
    env = envs.make("playground:CartpoleBalance")
    with pytest.raises(envs.RenderingError) as caught:
        env.render([upright(env)])
    message = str(caught.value)
    assert "MUJOCO_GL" in message and "libosmesa6" in message and "\n" not in message


@pytest.mark.skipif(
    os.environ.get("MUJOCO_GL") not in ("egl", "osmesa"),
    reason="needs OpenGL without a display: set MUJOCO_GL to egl or osmesa",
)
def test_mujoco_draws():
    env = envs.make("playground:CartpoleBalance")
    (frame,) = env.render([upright(env)], height=60, width=80)
    assert frame.dtype == np.uint8 and len(np.unique(frame)) > 10
