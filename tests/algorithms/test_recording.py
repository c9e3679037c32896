import re

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from helpers import assert_close, small_network, tree_equal
from nnx_ppo_fn import (
    derive,
    evaluate,
    extract_activations,
    record_activations_rollout,
    record_episode,
    recording_memory,
    unroll,
    with_override,
    with_recording,
)
from nnx_ppo_fn._keys import one_per_environment
from nnx_ppo_fn.envs import make


ENV = make("cartpole")
NETWORK = small_network(jr.key(3), ENV.observation_size)
KEY = jr.key(5)
SETTINGS = {"n_envs": 3, "max_episode_length": 60}


def physics(state):
    return state.data.physics


@pytest.fixture(scope="module")
def recording():
    return record_activations_rollout(
        ENV, NETWORK, key=KEY, state_data=physics, **SETTINGS
    )


def test_episodes_are_those_that_evaluate_plays(recording):
    metrics = evaluate(ENV, NETWORK, key=KEY, **SETTINGS)
    rewards = np.where(recording.ongoing, recording.rewards, 0)
    np.testing.assert_allclose(
        rewards.sum(0).mean(), metrics["eval/episode_reward/mean"]
    )
    np.testing.assert_allclose(
        recording.lifespans.mean(), metrics["eval/lifespan/mean"]
    )
    assert len(set(recording.lifespans.tolist())) > 1


def test_steps_are_those_of_a_single_episode(recording):
    episode = record_episode(
        ENV, NETWORK, key=jr.fold_in(KEY, 1), max_episode_length=60
    )
    assert recording.lifespans[1] == episode.length
    seen = np.stack([state.obs for state in episode.states[:-1]])
    assert_close(recording.observations[: episode.length, 1], seen)
    hidden = np.stack([state.data.physics for state in episode.states[:-1]])
    assert_close(recording.state_data[: episode.length, 1], hidden)
    ended = np.stack([state.done for state in episode.states[1:]])
    assert_close(recording.done[: episode.length, 1], ended)


def test_activations_are_those_of_the_network_on_these_observations(recording):
    network = with_recording(eqx.nn.inference_mode(NETWORK))
    keys = derive(one_per_environment(KEY, 3), "network")
    is_first = jnp.zeros(recording.done.shape, jnp.bool_)
    result = eqx.filter_jit(unroll)(
        network, network.initialize_state(keys), recording.observations, is_first
    )
    assert_close(recording.activations, extract_activations(result.metrics))
    assert_close(recording.actions, result.output.actions)


def test_steps_picks_those_of_episodes(recording):
    picked = recording.steps({"time": np.indices((60, 3))[0], "done": recording.done})
    assert len(picked["time"]) == sum(recording.lifespans)
    assert np.all(np.diff(picked["time"]) >= 0)
    ended = np.sum(np.asarray(recording.lifespans) < 60)
    assert picked["done"].sum() >= ended > 0


def test_a_network_that_records_already_records_what_is_selected():
    recorded = with_recording(NETWORK, ["[0]", "[4]"])
    chosen = recording_memory(ENV, recorded, select="[2]", **SETTINGS)
    assert [name for name in chosen if name.startswith("[")] == ["[2]"]
    assert recording_memory(ENV, recorded, **SETTINGS).keys() == (
        recording_memory(ENV, NETWORK, **SETTINGS).keys()
    )


def test_memory_is_known_before(recording):
    sizes = recording_memory(ENV, NETWORK, state_data=physics, **SETTINGS)
    assert sum(sizes.values()) == sum(
        leaf.nbytes for leaf in jax.tree.leaves(recording)
    )
    assert sizes["[0]"] == 60 * 3 * ENV.observation_size * 4
    assert sizes["state_data"] == 60 * 3 * 4 * 4
    chosen = recording_memory(ENV, NETWORK, select="[0]", **SETTINGS)
    assert chosen == {
        name: size
        for name, size in (sizes | {"state_data": 0}).items()
        if name == "[0]" or not name.startswith("[")
    }


def test_what_takes_too_much_is_refused_and_said():
    """191 bytes a step, of which 64 are the widest layer's."""
    huge = {"n_envs": 4096, "max_episode_length": 1_000_000}
    expected = (
        "a recording of 1000000 steps in 4096 environments takes 728.6 GiB, more than "
        "memory_limit=1073741824 bytes; most of it is '[2]' (244.1 GiB), '[1]' "
        "(122.1 GiB), '[3]' (122.1 GiB). Record fewer modules (select=...)"
    )
    with pytest.raises(MemoryError, match=re.escape(expected)):
        record_activations_rollout(ENV, NETWORK, key=KEY, **huge)


def test_a_lesion_is_played(recording):
    lesioned = with_override(NETWORK, {"[4].action[0]": jnp.zeros_like})
    found = record_activations_rollout(
        ENV, lesioned, key=KEY, select="[4].action[0]", **SETTINGS
    )
    assert found.activations.keys() == {"[4].action[0]"}
    np.testing.assert_array_equal(found.activations["[4].action[0]"], 0)
    # Equal logits: the likeliest action is the first one.
    np.testing.assert_array_equal(found.actions, 0)
    assert len(np.unique(recording.actions)) == 2


def test_noise_is_there_where_it_is_asked_for(recording):
    noisy = record_activations_rollout(
        ENV, NETWORK, key=KEY, deterministic=False, select="[3]", **SETTINGS
    )
    assert tree_equal(noisy.observations[0], recording.observations[0])
    assert not tree_equal(noisy.activations["[3]"][0], recording.activations["[3]"][0])


@pytest.mark.parametrize(
    "wrong, error, text",
    [
        ({"select": "[9]"}, ValueError, "no module stands at"),
        ({"n_envs": 0}, ValueError, "n_envs"),
        ({"max_episode_length": 0}, ValueError, "max_episode_length"),
    ],
)
def test_wrong_arguments_are_refused(wrong, error, text):
    with pytest.raises(error, match=text):
        record_activations_rollout(ENV, NETWORK, key=KEY, **(SETTINGS | wrong))
