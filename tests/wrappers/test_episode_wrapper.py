import copy
import dataclasses
import pickle
import warnings
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import jax.tree_util as jtu
import numpy as np
import pytest

from nnx_ppo_fn import envs
from nnx_ppo_fn.envs.types import episode_flags
from nnx_ppo_fn.wrappers import EpisodeWrapper


@jtu.register_dataclass
@dataclasses.dataclass
class SimulatorState:
    """In the manner of Brax and MuJoCo Playground: float flags, a plain dataclass."""

    obs: Any
    reward: Any
    done: Any
    info: dict[str, Any]
    metrics: dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Scripted:
    """Raises `done`, and a limit called `limit_name`, at fixed steps."""

    done_at: int
    limit_at: int = 1000
    limit_name: str = "truncation"
    says_terminated: bool = False

    def reset(self, key):
        return self._state(jnp.asarray(0))

    def step(self, state, action):
        return self._state(state.obs + 1)

    def _state(self, time):
        done = time >= self.done_at
        limit = time >= self.limit_at
        info = {self.limit_name: limit.astype(jnp.float32), "time": time}
        if self.says_terminated:
            info["terminated"] = done
        done = (done | limit).astype(jnp.float32)
        return SimulatorState(time, jnp.asarray(1.0), done, info, {})


def flags(env, steps):
    """Rows of (done, truncated) after each step, which is also what a rollout reads."""
    state = env.reset(jr.key(0))
    rows = []
    for _ in range(steps):
        state = env.step(state, 0)
        rows.append((int(state.done), int(state.info["truncated"])))
        assert tuple(map(int, episode_flags(state))) == rows[-1]
    return rows


def test_truncates_at_exactly_the_limit():
    env = EpisodeWrapper(envs.CartPole(), 3)
    state = env.reset(jr.key(0))
    assert int(state.info["step_counter"]) == 0
    counts, limits = [], []
    for action in (0, 1, 0):
        state = env.step(state, action)
        counts.append(int(state.info["step_counter"]))
        limits.append((bool(state.done), bool(state.info["truncated"])))
    assert counts == [1, 2, 3]
    assert limits == [(False, False), (False, False), (True, True)]
    assert not bool(state.info["terminated"])


@pytest.mark.parametrize(
    "inside, expected",
    [
        # The limit of 3 comes first.
        (Scripted(done_at=9), [(0, 0), (0, 0), (1, 1)]),
        # The episode ends before the limit.
        (Scripted(done_at=2), [(0, 0), (1, 0)]),
        # Both on the same step: terminated wins.
        (Scripted(done_at=3), [(0, 0), (0, 0), (1, 0)]),
        # A limit inside stays one, whatever its name, and is no termination.
        (Scripted(9, 2, "truncation"), [(0, 0), (1, 1)]),
        (Scripted(9, 2, "time_out"), [(0, 0), (1, 1)]),
        (Scripted(9, 2, "truncated"), [(0, 0), (1, 1)]),
        (Scripted(9, 3, "time_out"), [(0, 0), (0, 0), (1, 1)]),
        # Failing on the step of the limit inside, where the environment can tell.
        (Scripted(2, 2, "truncation", says_terminated=True), [(0, 0), (1, 0)]),
        (Scripted(2, 2, "truncation"), [(0, 0), (1, 1)]),
    ],
)
@pytest.mark.filterwarnings("ignore:.*time_out")
def test_ends_and_limits(inside, expected):
    assert flags(EpisodeWrapper(inside, 3), len(expected)) == expected


def test_a_limit_that_may_be_none_is_believed_aloud():
    with pytest.warns(UserWarning, match="time_out.* a fall included"):
        EpisodeWrapper(Scripted(9, 2, "time_out"), 3).reset(jr.key(0))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        EpisodeWrapper(Scripted(9, 2, "time_out", True), 3).reset(jr.key(0))


def test_keeps_the_form_of_the_state():
    """`done` keeps its dtype, reset and step agree, and it runs compiled in batches."""
    env = EpisodeWrapper(Scripted(done_at=9), 2)

    @jax.jit
    def two_steps(keys):
        first = jax.vmap(env.reset)(keys)
        second = jax.vmap(env.step, in_axes=(0, None))(first, 0)
        return first, second, jax.vmap(env.step, in_axes=(0, None))(second, 0)

    first, second, third = two_steps(jr.split(jr.key(0), 4))
    form = lambda state: jtu.tree_map(lambda x: (x.shape, x.dtype), state)
    assert form(first) == form(second) == form(third)
    assert isinstance(first, SimulatorState)
    np.testing.assert_array_equal(second.done, np.zeros(4, np.float32), strict=True)
    np.testing.assert_array_equal(third.done, np.ones(4, np.float32), strict=True)
    np.testing.assert_array_equal(third.info["truncated"], np.ones(4, bool))
    assert set(third.info) == {
        "truncation", "time", "step_counter", "truncated", "terminated"
    }  # fmt: skip


def test_leaves_the_state_inside_alone():
    """An environment that hands out a dict which it keeps gets it back unchanged."""
    kept = {}

    class Keeping:
        def reset(self, key):
            zero = jnp.asarray(0.0)
            return SimulatorState(zero, zero, zero, kept, {})

        def step(self, state, action):
            return dataclasses.replace(state, info=kept)

    env = EpisodeWrapper(Keeping(), 5)
    state = env.reset(jr.key(0))
    before = dict(state.info)
    env.step(state, 0)
    assert kept == {}
    assert state.info == before


def test_random_phase():
    env = EpisodeWrapper(envs.CartPole(), 4, random_phase=True)
    keys = jr.split(jr.key(0), 400)
    states = jax.jit(jax.vmap(env.reset))(keys)
    phases, counts = np.unique(states.info["step_counter"], return_counts=True)
    np.testing.assert_array_equal(phases, [0, 1, 2, 3])
    # Binomial(400, 1/4) has standard deviation 8.7.
    assert np.all(np.abs(counts - 100) < 5 * 8.7)
    assert not np.any(states.done)

    at_3 = int(np.argmax(np.asarray(states.info["step_counter"]) == 3))
    last = env.step(jtu.tree_map(lambda leaf: leaf[at_3], states), 0)
    assert bool(last.info["truncated"])


def test_without_random_phase_the_start_is_that_of_the_environment():
    key = jr.key(3)
    wrapped = EpisodeWrapper(envs.CartPole(), 4).reset(key)
    np.testing.assert_array_equal(wrapped.obs, envs.CartPole().reset(key).obs)


def test_describes_itself_by_the_environment_inside():
    env = EpisodeWrapper(envs.CartPole(hide_velocity=True), 20)
    assert isinstance(env, envs.DescribedEnv)
    assert (env.observation_size, env.action_size, env.discrete) == (2, 2, True)
    assert env.max_episode_length == 20
    assert EpisodeWrapper(envs.CartPole(), 900).max_episode_length == 500
    assert env.hide_velocity is True
    assert EpisodeWrapper(Scripted(1), 7).max_episode_length == 7
    assert not isinstance(EpisodeWrapper(Scripted(1), 7), envs.DescribedEnv)
    with pytest.raises(AttributeError, match="colour"):
        _ = env.colour


def test_equal_by_value():
    env = EpisodeWrapper(envs.CartPole(), 20)
    assert env == EpisodeWrapper(envs.CartPole(), 20)
    assert hash(env) == hash(EpisodeWrapper(envs.CartPole(), 20))
    assert env != EpisodeWrapper(envs.CartPole(), 21)
    assert env != EpisodeWrapper(envs.CartPole(True), 20)
    assert env != EpisodeWrapper(envs.CartPole(), 20, random_phase=True)
    assert pickle.loads(pickle.dumps(env)) == copy.deepcopy(env) == env


def test_refuses_what_cannot_work():
    with pytest.raises(ValueError, match="EpisodeWrapper needs max_len of at least 1"):
        EpisodeWrapper(envs.CartPole(), 0)
    twice = EpisodeWrapper(EpisodeWrapper(envs.CartPole(), 5), 5)
    with pytest.raises(ValueError, match="use a single EpisodeWrapper"):
        twice.reset(jr.key(0))
