import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from helpers import mlp_network, small_network
from nnx_ppo_fn import CompositionError, Dense, derive, evaluate
from nnx_ppo_fn.algorithms import evaluation
from nnx_ppo_fn.envs import make


def test_every_step_of_an_episode_is_counted():
    env = make("probe:truncation")
    network = mlp_network(jr.key(0), env.observation_size)
    metrics = evaluate(env, network, key=jr.key(1), n_envs=5, max_episode_length=1000)
    limit = env.max_episode_length
    assert metrics["eval/lifespan/mean"] == limit
    assert metrics["eval/episode_reward/mean"] == limit
    assert metrics["eval/episode_reward/std"] == 0
    assert metrics["eval/truncated"] == 1


def test_an_episode_is_left_at_the_longest_length():
    env = make("probe:truncation")
    network = mlp_network(jr.key(0), env.observation_size)
    metrics = evaluate(env, network, key=jr.key(1), n_envs=5, max_episode_length=2)
    assert metrics["eval/lifespan/mean"] == 2
    assert metrics["eval/truncated"] == 0


def lifespans_one_by_one(env, network, key, n_envs, max_episode_length):
    """The same episodes, each played alone in a Python loop."""
    step = jax.jit(lambda state, action: env.step(state, action))
    decide = jax.jit(lambda carry, x: network(carry, x))
    lifespans = []
    for index in range(n_envs):
        own_key = jr.fold_in(key, index)
        state = env.reset(derive(own_key, "environment"))
        carry = network.initialize_state(derive(own_key, "network")[None])
        lifespan = 0
        while lifespan < max_episode_length and not state.done:
            lifespan += 1
            decided = decide(carry, state.obs[None])
            carry = decided.next_state
            state = step(state, decided.output.actions[0])
        lifespans.append(lifespan)
    return lifespans


def test_episodes_go_as_they_would_one_by_one():
    """Each ends once, rewards after its end do not count, and its carry lives on."""
    env = make("cartpole")
    network = small_network(jr.key(3), env.observation_size)
    metrics = evaluate(
        env,
        network,
        key=jr.key(1),
        n_envs=6,
        max_episode_length=25,
        deterministic=False,
        percentiles=(0, 100),
    )
    expected = lifespans_one_by_one(env, network, jr.key(1), 6, 25)
    assert len(set(expected)) > 1
    np.testing.assert_allclose(metrics["eval/lifespan/mean"], np.mean(expected))
    np.testing.assert_allclose(metrics["eval/lifespan/std"], np.std(expected))
    assert metrics["eval/lifespan/p0"] == min(expected)
    assert metrics["eval/episode_reward/p100"] == max(expected)


def test_noise_is_off_unless_it_is_asked_for():
    env = make("cartpole")
    network = small_network(jr.key(0), env.observation_size)
    sizes = {"key": jr.key(0), "n_envs": 4, "max_episode_length": 20}
    silent, noisy, again = (
        float(evaluate(env, network, **sizes, deterministic=d)["eval/lifespan/mean"])
        for d in (True, False, True)
    )
    assert silent == again != noisy


@pytest.mark.parametrize("name", ["n_envs", "max_episode_length"])
def test_an_evaluation_of_nothing_is_refused(name):
    env = make("cartpole")
    sizes = {"n_envs": 2, "max_episode_length": 2, name: 0}
    with pytest.raises(ValueError, match=f"{name} must be at least 1"):
        evaluate(env, mlp_network(jr.key(0), 4), key=jr.key(0), **sizes)


def test_an_equal_environment_and_network_do_not_compile_anew(monkeypatch):
    traces = 0

    def counted(*arguments):
        nonlocal traces
        traces += 1
        return {"eval/truncated": jnp.float32(0)}

    monkeypatch.setattr(evaluation, "_evaluate", counted)
    for seed in range(3):
        evaluate(
            make("cartpole"),
            mlp_network(jr.key(seed), 4),
            key=jr.key(seed),
            n_envs=2,
            max_episode_length=3,
        )
    assert traces == 1


def test_a_network_that_cannot_act_is_told_why():
    with pytest.raises(CompositionError, match="end the network in a PPOAdapter"):
        evaluate(
            make("cartpole"),
            Dense(4, 2, key=jr.key(0)),
            key=jr.key(0),
            n_envs=2,
            max_episode_length=3,
        )
