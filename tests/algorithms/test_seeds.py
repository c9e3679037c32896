"""Seeds side by side are the seeds one by one."""

import dataclasses
import math

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from nnx_ppo_fn import make_recurrent_actor_critic, train_ppo
from nnx_ppo_fn._keys import derive
from nnx_ppo_fn.algorithms.config import EvalConfig, PPOConfig, TrainConfig
from nnx_ppo_fn.algorithms.seeds import _expect_seeds, train_seeds
from nnx_ppo_fn.algorithms.stopping import SeedsInterrupted, SeedsStopped
from nnx_ppo_fn.algorithms.types import Status
from nnx_ppo_fn.envs import CartPole, State
from nnx_ppo_fn.wrappers import EpisodeWrapper


CONFIG = TrainConfig(
    PPOConfig(n_envs=4, rollout_length=8, total_steps=96, n_epochs=2, n_minibatches=2),
    EvalConfig(every_steps=64, n_envs=4, max_episode_length=20),
    iterations_per_call=2,
)
ENV = CartPole(max_episode_length=5)
SEEDS = [3, 8]


def make_network(key):
    return make_recurrent_actor_critic(
        key=key, env=ENV, hidden_features=8, head_sizes=(8,)
    )


@pytest.fixture(scope="module")
def side_by_side():
    lines = []
    results = train_seeds(
        ENV,
        make_network,
        CONFIG,
        seeds=SEEDS,
        log_fn=lambda metrics, step: lines.append((step, metrics)),
    )
    return results, lines


@pytest.fixture(scope="module")
def one_by_one():
    def train(seed):
        lines = []
        result = train_ppo(
            ENV,
            make_network(derive(jr.key(seed), "initial weights")),
            CONFIG,
            seed=seed,
            log_fn=lambda metrics, step: lines.append((step, metrics)),
        )
        return result, lines

    return [train(seed) for seed in SEEDS]


def assert_close(actual, expected):
    for one, other in zip(
        jax.tree.leaves(actual), jax.tree.leaves(expected), strict=True
    ):
        if jnp.issubdtype(one.dtype, jax.dtypes.prng_key):
            one, other = jr.key_data(one), jr.key_data(other)
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


def test_states_are_those_of_the_seeds_alone(side_by_side, one_by_one):
    for together, (alone, _) in zip(side_by_side[0], one_by_one, strict=True):
        assert_close(together.training_state, alone.training_state)
        assert together.total_steps == alone.total_steps == 96
        assert together.total_iterations == alone.total_iterations == 3
        assert together.fault == ""


def test_seeds_differ(side_by_side):
    first, second = (result.training_state.parameters for result in side_by_side[0])
    gaps = jax.tree.map(lambda a, b: float(jnp.max(jnp.abs(a - b))), first, second)
    assert max(jax.tree.leaves(gaps)) > 0.01


def test_metrics_are_those_of_the_seeds_alone(side_by_side, one_by_one):
    lines = side_by_side[1]
    for seed, (result, expected) in enumerate(one_by_one):
        assert [step for step, _ in lines] == [step for step, _ in expected]
        for (_, metrics), (_, alone) in zip(lines, expected, strict=True):
            assert set(metrics[seed]) == set(alone)
            for name, value in alone.items():
                # What is 0 but for rounding is not comparable.
                if not name.startswith(("replay/", "throughput/")):
                    np.testing.assert_allclose(
                        metrics[seed][name], value, rtol=1e-3, atol=1e-4
                    )
        history = side_by_side[0][seed].eval_history
        assert [one["step"] for one in history] == [0, 64, 96]
        assert history == result.eval_history


def test_a_fault_stops_its_own_seed_alone():
    env = EpisodeWrapper(_Explosive(), 8)

    def make(key):
        return make_recurrent_actor_critic(1, 1, key=key, hidden_features=4)

    lines = []
    config = dataclasses.replace(
        CONFIG,
        eval=EvalConfig(every_steps=96, n_envs=2, max_episode_length=3),
        iterations_per_call=3,
    )
    results = train_seeds(
        env, make, config, seeds=range(6), log_fn=lambda m, s: lines.append(m)
    )
    broken = [bool(result.fault) for result in results]
    assert 0 < sum(broken) < 6
    # The first line is that of the evaluation before training.
    told = [sum(bool(line[seed]) for line in lines[1:]) for seed in range(6)]
    assert told == [result.total_iterations for result in results]
    for result, is_broken, last in zip(results, broken, lines[-1], strict=True):
        status = int(result.training_state.status)
        assert len(result.eval_history) == 1 + (not is_broken)
        if is_broken:
            assert status == Status.REWARD_NOT_FINITE
            assert "the reward of environment" in result.fault
            assert result.total_steps < 96
            assert last == {}
        else:
            assert status == Status.HEALTHY and result.total_steps == 96
            assert all(
                math.isfinite(value)
                for name, value in last.items()
                if not name.startswith("episode/")
            )
        leaves = jax.tree.leaves(result.training_state.parameters)
        assert all(bool(jnp.all(jnp.isfinite(leaf))) for leaf in leaves)


class _Explosive:
    """A reward that is not a number where a rare start was drawn."""

    def reset(self, key):
        start = jr.uniform(key, (1,))
        return State.create((), start, 0.0, terminated=False, truncated=False)

    def step(self, state, action):
        reward = jnp.where(state.obs[0] < 0.04, jnp.nan, 1.0)
        return State.create((), state.obs, reward, terminated=False, truncated=False)


def test_ctrl_c_is_heeded_when_all_of_a_call_is_told():
    told = []

    def stop(metrics, step):
        told.append(step)
        if step == 32:
            raise KeyboardInterrupt

    with pytest.raises(SeedsInterrupted) as caught:
        train_seeds(ENV, make_network, CONFIG, seeds=SEEDS, log_fn=stop)
    assert [result.total_steps for result in caught.value.results] == [64, 64]
    assert told == [0, 32, 64]


def test_a_log_that_fails_loses_no_seed():
    def fail(metrics, step):
        if step == 64:
            raise OSError("no space left")

    with pytest.raises(SeedsStopped, match="log_fn failed after 64 .*no space") as stop:
        train_seeds(ENV, make_network, CONFIG, seeds=SEEDS, log_fn=fail)
    assert [result.total_steps for result in stop.value.results] == [64, 64]
    assert isinstance(stop.value.__cause__, OSError)


@pytest.mark.parametrize("seeds", [[], [1, 1]])
def test_seeds_must_be_different(seeds):
    with pytest.raises(ValueError, match="all different"):
        train_seeds(ENV, make_network, CONFIG, seeds=seeds)


def test_networks_must_be_alike():
    sizes = iter([4, 8])

    def make(key):
        return make_recurrent_actor_critic(
            key=key, env=ENV, hidden_features=next(sizes)
        )

    with pytest.raises(ValueError, match="same structure"):
        train_seeds(ENV, make, CONFIG, seeds=SEEDS)


@pytest.mark.parametrize("seeds", [3, None, [0.5], ["1"], jnp.zeros(2)])
def test_seeds_are_integers(seeds):
    """The runtime checker would speak first, so the check is called by itself."""
    with pytest.raises(TypeError, match="list of integer seeds"):
        _expect_seeds(seeds)


@pytest.mark.parametrize("seed", [-1, 2**32])
def test_no_two_seeds_are_the_same_one(seed):
    with pytest.raises(ValueError, match="seed must be"):
        train_seeds(ENV, make_network, CONFIG, seeds=[seed])
    with pytest.raises(ValueError, match="seed must be"):
        TrainConfig(seed=seed)


def test_seeds_may_be_an_array():
    assert _expect_seeds(np.arange(2)) == _expect_seeds(jnp.arange(2)) == [0, 1]
