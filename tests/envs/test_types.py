import dataclasses
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from nnx_ppo_fn import envs
from nnx_ppo_fn.envs._checks import check_steps
from nnx_ppo_fn.envs.types import (
    episode_flags,
    final_observation,
    hides_final_observation,
    State,
)


@dataclasses.dataclass
class BareState:
    """The least that the protocol asks for."""

    done: Any
    info: dict[str, Any]
    obs: Any = None
    reward: Any = 0.0
    metrics: dict[str, Any] = dataclasses.field(default_factory=dict)


def test_a_plain_dataclass_is_a_state():
    assert isinstance(BareState(False, {}), envs.EnvState)
    assert not isinstance(object(), envs.EnvState)
    assert not isinstance(BareState(False, {}), envs.RLEnv)


@pytest.mark.parametrize(
    "done, info, expected",
    [
        (False, {}, (False, False)),
        (True, {}, (True, False)),
        (1.0, {}, (True, False)),
        # A limit with done, and one that leaves done alone.
        (True, {"truncated": True}, (True, True)),
        (0.0, {"truncated": True}, (True, True)),
        # The names of other libraries, as floats.
        (1.0, {"truncation": 1.0}, (True, True)),
        (0.0, {"time_out": 1.0}, (True, True)),
        (0.0, {"truncated": False, "time_out": 1.0}, (True, True)),
        (1.0, {"truncation": 0.0}, (True, False)),
        # Both on one step.
        (True, {"truncated": True, "terminated": True}, (True, False)),
        (False, {"truncated": True, "terminated": True}, (True, False)),
        (True, {"truncated": True, "terminated": False}, (True, True)),
    ],
)
def test_episode_flags(done, info, expected):
    state = BareState(
        jnp.asarray(done), {name: jnp.asarray(info[name]) for name in info}
    )
    flags = episode_flags(state)
    assert tuple(map(bool, flags)) == expected
    assert all(flag.dtype == bool for flag in flags)


def test_episode_flags_of_a_batch():
    state = BareState(
        jnp.asarray([0.0, 1.0, 1.0, 0.0]),
        {
            "truncation": jnp.asarray([0.0, 0.0, 1.0, 1.0]),
            "terminated": jnp.asarray([False, True, True, False]),
        },
    )
    done, truncated = episode_flags(state)
    np.testing.assert_array_equal(done, [False, True, True, True])
    np.testing.assert_array_equal(truncated, [False, False, False, True])


def test_created_states_are_strong_and_consistent():
    state = State.create(
        {"time": 0, "angle": jnp.asarray(0.5)},
        jnp.asarray(1.0),
        {"forward": 1, "energy": jnp.asarray(2.0)},
        terminated=True,
        truncated=True,
    )
    assert bool(state.done) and bool(state.info["terminated"])
    assert not bool(state.info["truncated"])
    assert state.data["time"].dtype == jnp.int32
    assert state.reward["forward"].dtype == jnp.float32
    for leaf in (*state.data.values(), *state.reward.values(), state.obs, state.done):
        assert not leaf.weak_type


@pytest.mark.parametrize(
    "names, hides",
    [
        ([], False),
        (["terminated", "truncated"], False),
        # Brax's AutoResetWrapper, and MuJoCo Playground's.
        (["steps", "first_obs", "first_pipeline_state"], True),
        (["AutoResetWrapper_first_obs", "AutoResetWrapper_first_data"], True),
        # One that restarts itself and says what was there before.
        (["first_obs", "final_observation"], False),
        (["final_observation"], False),
        # Names that only resemble theirs, and what is no name at all.
        (["history_first_obs", "first_data", 1], False),
    ],
)
def test_hidden_final_observations_are_told_from_the_names(names, hides):
    state = BareState(False, {name: jnp.zeros(()) for name in names})
    assert hides_final_observation(state) is hides


def test_the_final_observation_is_the_one_before_a_restart():
    last, start = {"eye": jnp.ones(2)}, {"eye": jnp.zeros(2)}
    assert final_observation(BareState(True, {}, obs=last)) is last
    info = {"final_observation": last}
    assert final_observation(BareState(True, info, obs=start)) is last


@pytest.mark.parametrize("steps", [2.5, 3.0, "5", None, True])
def test_numbers_of_steps_are_integers(steps):
    with pytest.raises(TypeError, match="Sprint needs limit to be an integer, got"):
        check_steps("Sprint", "limit", steps)


def test_numbers_of_steps_have_a_least():
    check_steps("Sprint", "limit", np.int64(2), at_least=2)
    with pytest.raises(ValueError, match="Sprint needs limit of at least 2, got 1"):
        check_steps("Sprint", "limit", 1, at_least=2)
