import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from drawn import Drawn
from helpers import assert_close, mlp_network, small_network, tree_equal
from nnx_ppo_fn import (
    CategoricalSampler,
    CompositionError,
    Dense,
    derive,
    evaluate,
    InvalidEnvironmentError,
    output,
    PPOAdapter,
    Sequential,
    StatelessModule,
)
from nnx_ppo_fn.algorithms import trajectory
from nnx_ppo_fn.algorithms.trajectory import record_episode, Trajectory
from nnx_ppo_fn.envs import make
from nnx_ppo_fn.envs.probes import CountingProbe
from nnx_ppo_fn.wrappers._abstract_wrapper import AbstractWrapper, replace


def test_an_episode_is_the_one_that_evaluate_plays():
    """The first of an evaluation, with noise and a recurrent carry, to its end."""
    env = make("cartpole")
    network = small_network(jr.key(3), env.observation_size)
    lengths = set()
    for seed in range(3):
        settings = {"max_episode_length": 60, "deterministic": False}
        metrics = evaluate(env, network, key=jr.key(seed), n_envs=1, **settings)
        episode = record_episode(
            env, network, key=jr.fold_in(jr.key(seed), 0), **settings
        )
        assert episode.length == metrics["eval/lifespan/mean"]
        assert episode.episode_reward == metrics["eval/episode_reward/mean"]
        lengths.add(episode.length)
    assert len(lengths) > 1


def test_states_are_those_of_the_environment_step_by_step():
    env = make("cartpole")
    network = small_network(jr.key(0), env.observation_size)
    episode = record_episode(env, network, key=jr.key(1), max_episode_length=100)
    decide = jax.jit(eqx.nn.inference_mode(network).__call__)
    step = jax.jit(lambda state, action: env.step(state, action))
    state = env.reset(derive(jr.key(1), "environment"))
    carry = network.initialize_state(derive(jr.key(1), "network")[None])
    for recorded in episode.states:
        assert all(isinstance(leaf, np.ndarray) for leaf in jax.tree.leaves(recorded))
        assert_close(recorded, state)
        decided = decide(carry, state.obs[None])
        carry = decided.next_state
        state = step(state, decided.output.actions[0])
    assert len(episode.states) == episode.length + 1
    assert [bool(state.done) for state in episode.states].index(True) == episode.length


@pytest.mark.parametrize(
    "limit, length, truncated", [(3, 3, False), (5, 5, True), (100, 5, True)]
)
def test_an_episode_that_is_left_is_not_truncated(limit, length, truncated):
    env = Drawn()
    network = mlp_network(jr.key(0), env.observation_size)
    episode = record_episode(env, network, key=jr.key(1), max_episode_length=limit)
    assert episode.length == length
    assert episode.truncated is truncated
    assert episode.episode_reward == length


def test_an_episode_longer_than_one_call_has_no_seam():
    env = Drawn(CountingProbe(100))
    network = mlp_network(jr.key(0), env.observation_size)
    episode = record_episode(env, network, key=jr.key(1), max_episode_length=1000)
    assert trajectory._STEPS_PER_CALL < 100
    counts = [int(state.obs[0]) for state in episode.states]
    assert counts == list(range(101))


class Keeper(AbstractWrapper):
    """Keeps a typed key in its state, and gives rewards of two kinds."""

    env: CountingProbe = CountingProbe(3)

    def reset(self, key):
        return self._with_more(self.env.reset(key), key)

    def step(self, state, action):
        return self._with_more(
            self.env.step(state, action), jr.fold_in(state.info["key"], 1)
        )

    def _with_more(self, state, key):
        rewards = {"steps": state.reward, "twice": 2 * state.reward}
        return replace(state, info={**state.info, "key": key}, reward=rewards)


class TwoValues(StatelessModule):
    """The values of two kinds of reward."""

    def __call__(self, state, x, rollout_extras=None):
        zeros = jnp.zeros(len(x))
        return output({"steps": zeros, "twice": zeros}, batch=len(x))


def test_states_may_hold_keys_and_rewards_be_of_several_kinds():
    network = PPOAdapter(
        Sequential([Dense(1, 2, key=jr.key(0)), CategoricalSampler(0.0)]), TwoValues()
    )
    episode = record_episode(Keeper(), network, key=jr.key(1), max_episode_length=10)
    key = derive(jr.key(1), "environment")
    for state in episode.states:
        assert state.info["key"].shape == ()
        assert tree_equal(state.info["key"], key)
        key = jr.fold_in(key, 1)
    assert episode.episode_reward == 3 * (1 + 2)


def test_frames_show_every_state():
    env = Drawn()
    network = mlp_network(jr.key(0), env.observation_size)
    episode = record_episode(env, network, key=jr.key(1), max_episode_length=10)
    frames = episode.frames(env, height=4, width=6)
    assert frames.shape == (6, 4, 6, 3) and frames.dtype == np.uint8
    np.testing.assert_array_equal(frames[:, 0, 0, 0], np.arange(6))
    assert episode.frames(env).shape == (6, 240, 320, 3)


class Painter(Drawn):
    """Draws what it is told to."""

    drawn: object = None

    def render(self, trajectory, *, height=240, width=320):
        return self.drawn


def grey(height):
    return np.zeros((height, 6), np.uint8)


@pytest.mark.parametrize(
    "drawn, got",
    [
        ([grey(4), grey(4)], r"uint8 \[2, 4, 6\]"),
        ([grey(4), grey(5)], r"pictures of the shapes \[4, 6\], \[5, 6\]"),
        ([], "no pictures"),
        (None, "NoneType"),
    ],
)
def test_what_an_environment_drew_instead_is_said(drawn, got):
    start = CountingProbe().reset(jr.key(0))
    episode = Trajectory([start, start], episode_reward=0.0, length=1, truncated=False)
    message = rf"Painter.render to return uint8 \[2, 4, 6, 3\], got {got}$"
    with pytest.raises(InvalidEnvironmentError, match=message):
        episode.frames(Painter(drawn=drawn), height=4, width=6)


def test_what_cannot_be_drawn_says_why():
    start = CountingProbe().reset(jr.key(0))
    episode = Trajectory([start, start], episode_reward=0.0, length=1, truncated=False)
    with pytest.raises(InvalidEnvironmentError, match="Probe cannot draw itself"):
        episode.frames(CountingProbe())


def test_an_equal_environment_and_network_do_not_compile_anew(monkeypatch):
    traces, go_on = 0, trajectory._go_on

    def counted(*arguments):
        nonlocal traces
        traces += 1
        return go_on(*arguments)

    monkeypatch.setattr(trajectory, "_go_on", counted)
    for seed in range(3):
        record_episode(
            Drawn(CountingProbe(7)),
            mlp_network(jr.key(seed), 1),
            key=jr.key(seed),
            max_episode_length=2 + seed,
        )
    assert traces == 1


def test_what_does_not_fit_is_refused():
    env, key = Drawn(), jr.key(0)
    with pytest.raises(ValueError, match="max_episode_length must be at least 1"):
        record_episode(env, mlp_network(key, 1), key=key, max_episode_length=0)
    with pytest.raises(CompositionError, match="end the network in a PPOAdapter"):
        record_episode(env, Dense(1, 2, key=key), key=key, max_episode_length=3)
