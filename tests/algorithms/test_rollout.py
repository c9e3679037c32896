import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import jaxtyping
import numpy as np
import pytest

from helpers import assert_close, small_network
from nnx_ppo_fn import (
    EpisodeWrapper,
    initial_rollout_state,
    PPOAdapter,
    Sequential,
    unroll_env,
)
from nnx_ppo_fn.algorithms.rollout import critic_value
from nnx_ppo_fn.envs import make


LENGTH = 13


@pytest.fixture(scope="module")
def collected():
    """A rollout of the counting environment, whose episodes are cut by a limit."""
    env = make("probe:counting")
    network = small_network(jr.key(0), env.observation_size)
    start = initial_rollout_state(env, network, jr.split(jr.key(1), 6))
    run = jax.jit(lambda state: unroll_env(env, network, state, LENGTH))
    return env, network, start, *run(start)


def test_observations_count_and_episodes_start_anew_on_the_spot(collected):
    env, _, _, _, rollout = collected
    limit = env.max_episode_length
    steps = np.arange(LENGTH) % limit
    np.testing.assert_array_equal(
        rollout.transitions.obs[:, 0, 0], steps.astype(np.float32)
    )
    np.testing.assert_array_equal(rollout.is_first[:, 0], steps == 0)
    np.testing.assert_array_equal(rollout.transitions.done[:, 0], steps == limit - 1)
    np.testing.assert_array_equal(
        rollout.transitions.truncated[:, 0], steps == limit - 1
    )
    episode = rollout.transitions.metrics["episode"]
    np.testing.assert_array_equal(episode["length"][:, 0], steps + 1)


def test_a_truncated_step_is_valued_by_its_own_final_observation(collected):
    """Seen with the carry before the reset, and not by the next episode's first."""
    env, network, start, _, rollout = collected
    silent = eqx.nn.inference_mode(network)
    carry = start.carry
    for t in range(env.max_episode_length):
        first = rollout.is_first[t]
        fresh = network.reset_state(carry)
        carry = jax.tree.map(
            lambda a, b, first=first: jnp.where(
                first.reshape((-1,) + (1,) * (a.ndim - 1)), a, b
            ),
            fresh,
            carry,
        )
        carry = network(carry, rollout.transitions.obs[t]).next_state
    final = rollout.transitions.obs[0] + env.max_episode_length
    expected = silent(carry, final).output.value_estimates
    actual = rollout.transitions.bootstrap_value[env.max_episode_length - 1]
    np.testing.assert_allclose(actual, expected, atol=1e-6)
    assert jnp.all(rollout.transitions.bootstrap_value[0] == 0)


def test_the_last_row_values_what_follows_the_rollout(collected):
    _, network, _, end, rollout = collected
    expected = critic_value(network, end.carry, rollout.last_observation)
    assert not jnp.any(rollout.transitions.done[-1])
    np.testing.assert_allclose(
        rollout.transitions.bootstrap_value[-1], expected, atol=1e-6
    )


def test_an_environment_does_not_notice_its_neighbours(collected):
    env, network, _, end, rollout = collected
    rows = jnp.array([4, 1])
    start = initial_rollout_state(env, network, jr.split(jr.key(1), 6)[rows])
    alone_end, alone = unroll_env(env, network, start, LENGTH)
    assert_close(alone, rollout.minibatch(rows))
    assert_close(alone_end, jax.tree.map(lambda leaf: leaf[rows], end))


def test_two_short_rollouts_are_one_long_one(collected):
    env, network, start, end, rollout = collected
    middle, first = unroll_env(env, network, start, 4)
    last, second = unroll_env(env, network, middle, LENGTH - 4)
    assert_close(last, end)
    both = jax.tree.map(
        lambda a, b: jnp.concatenate([a, b]), first.transitions, second.transitions
    )
    assert_close(both.rewards, rollout.transitions.rewards)
    assert_close(both.network_output, rollout.transitions.network_output)


def test_the_observation_is_not_stacked_a_second_time(collected):
    """The normaliser's extras are the observation itself, not a copy of it."""
    env, network, start, _, _ = collected
    jaxpr = jax.make_jaxpr(lambda s: unroll_env(env, network, s, LENGTH))(start)
    (scan,) = [e for e in jaxpr.eqns if e.primitive.name == "scan"]
    stacked = scan.outvars[scan.params["num_carry"] :]
    observations = [v for v in stacked if v.aval.shape == (LENGTH, 6, 1)]
    actions = [v for v in stacked if v.aval.dtype == jnp.int32]
    assert len(observations) == 1
    assert len(actions) == 2, "the action and the length of the episode"
    _, rollout = unroll_env(env, network, start, LENGTH)
    assert rollout.transitions.rollout_extras[0] is rollout.transitions.obs


def test_resets_are_not_paid_while_nobody_is_done(collected):
    """Every draw of a fresh start stands inside a `cond`."""
    env = make("cartpole")
    network = small_network(jr.key(0), env.observation_size)
    start = initial_rollout_state(env, network, jr.split(jr.key(1), 6))
    jaxpr = jax.make_jaxpr(lambda s: unroll_env(env, network, s, 3))(start)
    (scan,) = [e for e in jaxpr.eqns if e.primitive.name == "scan"]
    body = scan.params["jaxpr"].eqns
    assert "_uniform" not in {e.params.get("name") for e in body}
    conditional = [str(e) for e in body if e.primitive.name == "cond"]
    assert (
        len(conditional) == 2 and sum("_uniform" in text for text in conditional) == 1
    )


@pytest.mark.parametrize(
    ("n_shards", "error", "said"),
    [
        (
            4,
            ValueError,
            "of 6 environments .* n_shards=4 .* divisor of 6",
        ),
        (0, ValueError, "n_shards must be at least 1"),
        (2.0, TypeError, "n_shards must be an integer"),
    ],
)
def test_groups_that_are_none_are_refused(collected, n_shards, error, said):
    env, network, start, _, _ = collected
    jaxtyping.config.update("jaxtyping_disable", True)
    try:
        with pytest.raises(error, match=said):
            unroll_env(env, network, start, 2, n_shards=n_shards)
    finally:
        jaxtyping.config.update("jaxtyping_disable", False)


def test_one_environment_and_one_step_are_enough():
    env = EpisodeWrapper(make("cartpole"), max_len=1)
    network = small_network(jr.key(0), env.observation_size)
    start = initial_rollout_state(env, network, jr.split(jr.key(1), 1))
    end, rollout = unroll_env(env, network, start, 1)
    assert rollout.transitions.obs.shape == (1, 1, 4)
    assert bool(end.is_first[0]) and bool(rollout.transitions.truncated[0, 0])


def test_a_network_without_a_normaliser_rolls_out_too():
    env = make("cartpole")
    network = small_network(jr.key(0), env.observation_size)
    adapter = Sequential(network.layers[1:])
    assert isinstance(adapter[-1], PPOAdapter)
    start = initial_rollout_state(env, adapter, jr.split(jr.key(1), 3))
    _, rollout = unroll_env(env, adapter, start, 2)
    assert rollout.transitions.rollout_extras[0] is None
