import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from nnx_ppo_fn import envs


gymnax = pytest.importorskip("gymnax")


def play(env, key, policy, length):
    """`length` steps without resets: the first state, and all states after it."""

    def step(state, _):
        state = env.step(state, policy(state.obs))
        return state, state

    first = env.reset(key)
    return first, jax.lax.scan(step, first, None, length=length)[1]


def balance(obs):
    """A linear controller under which the pole stays up."""
    return (obs @ jnp.asarray([0.1, 0.3, 3.0, 1.0]) > 0).astype(jnp.int32)


def test_pendulum_is_truncated_and_never_terminates():
    env = envs.make("gymnax:Pendulum-v1")
    _, states = play(env, jr.key(0), lambda obs: jnp.zeros(1), 200)
    np.testing.assert_array_equal(
        states.info["truncated"], np.arange(1, 201) == env.max_episode_length
    )
    assert not np.any(states.info["terminated"])


def test_cartpole_is_truncated_if_it_stays_up():
    env = envs.make("gymnax:CartPole-v1")
    _, states = play(env, jr.key(0), balance, 500)
    np.testing.assert_array_equal(states.info["truncated"], np.arange(1, 501) == 500)
    assert not np.any(states.info["terminated"])
    assert float(states.reward.sum()) == 500


def test_a_truncated_episode_shows_its_own_observation():
    """The one that gymnax's dynamics give, stepped by hand."""
    env = envs.make("gymnax:Pendulum-v1", max_episode_length=2)
    assert env == envs.make("gymnax:Pendulum-v1", max_steps_in_episode=2)
    first, states = play(env, jr.key(0), lambda obs: jnp.ones(1), 2)
    np.testing.assert_array_equal(states.info["truncated"], [False, True])
    angle, speed = float(jnp.arctan2(first.obs[1], first.obs[0])), float(first.obs[2])
    for obs in states.obs:
        speed += 0.05 * (15 * np.sin(angle) + 3 * 2)
        angle += 0.05 * speed
        expected = [np.cos(angle), np.sin(angle), speed]
        np.testing.assert_allclose(obs, expected, rtol=1e-4, atol=1e-5)


def test_cartpole_terminates_if_it_falls():
    """And on the last step allowed, falling wins."""
    push = lambda obs: jnp.asarray(1)
    _, states = play(envs.make("gymnax:CartPole-v1"), jr.key(0), push, 15)
    fall = int(np.argmax(states.info["terminated"])) + 1
    assert bool(states.done[fall - 1]) and not np.any(states.info["truncated"])
    # What the last step shows is not a new start.
    assert abs(float(states.obs[fall - 1, 2])) > 12 * np.pi / 180

    limited = envs.make("gymnax:CartPole-v1", max_episode_length=fall)
    _, states = play(limited, jr.key(0), push, fall)
    assert limited.max_episode_length == fall
    assert bool(states.info["terminated"][-1]) and not np.any(states.info["truncated"])


def test_memory_chain():
    """Six steps; the cue, -1 or 1, is shown in the last number at the first two; the
    answer to the sixth observation is rewarded with 1 or -1."""
    env = envs.make("gymnax:MemoryChain-bsuite")
    always_1 = lambda obs: jnp.asarray(1)
    first, states = jax.vmap(lambda key: play(env, key, always_1, 6))(
        jr.split(jr.key(0), 8)
    )
    cues = np.asarray(first.obs[:, 2])
    none = np.zeros(8)
    assert set(cues) == {-1.0, 1.0}
    np.testing.assert_array_equal(
        states.obs[:, :5, 2], np.stack([cues, none, none, none, none], axis=1)
    )
    np.testing.assert_array_equal(
        states.reward, np.stack([none, none, none, none, none, cues], axis=1)
    )
    np.testing.assert_array_equal(
        states.info["terminated"], np.broadcast_to(np.arange(6) == 5, (8, 6))
    )
    assert not np.any(states.info["truncated"])


@pytest.mark.parametrize("name", ["Pendulum-v1", "PointRobot-misc"])
def test_actions_are_scaled_to_the_box(name):
    """-1, 0, 1 and what lies beyond become low, middle, high and high."""
    env = envs.make(f"gymnax:{name}")
    theirs, params = gymnax.make(name)
    box = theirs.action_space(params)
    state = env.reset(jr.key(0))
    _, step_key = jr.split(state.data.key)
    for action, scaled in [
        (-1.0, box.low),
        (0.0, 0.0),
        (1.0, box.high),
        (7.0, box.high),
    ]:
        after = env.step(state, jnp.full(env.action_size, action))
        with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
            scaled = jnp.broadcast_to(jnp.asarray(scaled), box.shape)
            obs, _, reward, _, _ = theirs.step_env(
                step_key, state.data.simulator, scaled, params
            )
        np.testing.assert_allclose(after.obs, obs, rtol=1e-6)
        np.testing.assert_allclose(after.reward, reward, rtol=1e-6)


def test_chance_in_steps_comes_from_the_episode_key():
    """Two episodes of a bandit differ, one episode repeats itself."""
    env = envs.make("gymnax:GaussianBandit-misc")
    always_1 = lambda obs: jnp.asarray(1)
    keys = jnp.stack([jr.key(0), jr.key(0), jr.key(1)])
    _, states = jax.vmap(lambda key: play(env, key, always_1, 5))(keys)
    rewards = np.asarray(states.reward)
    assert len(np.unique(rewards[0])) == 5
    np.testing.assert_array_equal(rewards[0], rewards[1])
    assert np.all(rewards[0] != rewards[2])


@pytest.mark.parametrize(
    "name, shape, size",
    [("Catch-bsuite", (10, 5), 50), ("FrozenLake-misc", (1,), 1)],
)
def test_integer_observations_become_floats(name, shape, size):
    env = envs.make(f"gymnax:{name}")
    state = env.reset(jr.key(0))
    assert (state.obs.dtype, state.obs.shape) == (jnp.float32, shape)
    assert env.observation_size == size


@pytest.mark.parametrize(
    "name, seconds", [("CartPole-v1", 0.02), ("Breakout-MinAtar", 0.1)]
)
def test_frames(name, seconds):
    pytest.importorskip("PIL")
    env = envs.make(f"gymnax:{name}")
    frames = env.render([env.reset(jr.key(0))], height=60, width=80)
    assert [(frame.shape, frame.dtype) for frame in frames] == [((60, 80, 3), np.uint8)]
    assert len(np.unique(frames[0].reshape(-1, 3), axis=0)) > 2
    assert env.seconds_per_step == seconds
    assert isinstance(env, envs.RenderableEnv)


def test_no_picture_no_render():
    env = envs.make("gymnax:Acrobot-v1")
    assert getattr(env, "render", None) is None
    with pytest.raises(AttributeError, match="no picture of gymnax:Acrobot-v1"):
        env.render([])


def test_equal_by_value():
    make = lambda **options: envs.make("gymnax:DeepSea-bsuite", **options)
    assert make() == make() and hash(make()) == hash(make())
    # `size` belongs to gymnax's constructor, `deterministic` to its parameters.
    small = make(size=4, deterministic=False)
    assert small == make(deterministic=False, size=4)
    assert hash(small) == hash(make(deterministic=False, size=4))
    assert small != make(size=4) and small != make()
    assert small.observation_size == 16 and small.max_episode_length == 4


def test_the_first_use_may_be_inside_a_trace():
    """Nothing of a trace survives in what the adapter remembers."""

    def first_observation(key):
        return envs.make("gymnax:DeepSea-bsuite", size=5).reset(key).obs

    inside = jax.jit(first_observation)(jr.key(0))
    np.testing.assert_array_equal(inside, first_observation(jr.key(0)))


@pytest.mark.parametrize(
    "name, options, message",
    [
        ("CartPole-v1", {"gravty": 9.0}, "has no option 'gravty' .did.* 'gravity'"),
        ("DeepSea-bsuite", {"sise": 4}, "has no option 'sise' .did you mean 'size'"),
        ("CartPole-v1", {"gravity": "9"}, "needs gravity to be a number, got '9'"),
        ("DeepSea-bsuite", {"deterministic": 2}, "deterministic to be True or False"),
        ("CartPole-v1", {"gravity": jnp.ones((3, 3))}, r"gravity=an array \[3, 3\]"),
        ("CartPole-v1", {"max_steps_in_episode": 2.5}, "an integer, got 2.5"),
    ],
)
def test_unfit_options(name, options, message):
    with pytest.raises(TypeError, match=f"gymnax:{name} .*{message}") as caught:
        envs.make(f"gymnax:{name}", **options)
    assert "\n" not in str(caught.value)
