import dataclasses

import jax.numpy as jnp
import numpy as np
import pytest

from nnx_ppo_fn import LoggingLevel, PPOConfig, PPONetworkOutput, Rollout, Transition
from nnx_ppo_fn.algorithms.metrics import iteration_metrics, summarize


DONE = jnp.array([[False, True], [True, False]])
ROLLOUT = Rollout(
    initial_carry=(),
    is_first=jnp.zeros((2, 2), bool),
    transitions=Transition(
        obs={"eye": jnp.array([[1.0, 2.0], [3.0, 6.0]])},
        network_output=PPONetworkOutput(
            actions=jnp.array([[0, 1], [1, 0]]),
            loglikelihoods=jnp.array([[-1.0, -3.0], [-1.0, -3.0]]),
            value_estimates=jnp.array([[2.0, 2.0], [4.0, 4.0]]),
        ),
        rewards={
            "food": jnp.ones((2, 2)),
            "pain": jnp.array([[0.0, 0.0], [0.0, -4.0]]),
        },
        done=DONE,
        truncated=jnp.array([[False, True], [False, False]]),
        bootstrap_value=jnp.zeros((2, 2)),
        metrics={
            "env": {"speed": jnp.array([[5.0, 7.0], [5.0, 7.0]])},
            "net": {"0": {"kl_divergence": jnp.array([[1.0, 2.0], [1.0, 2.0]])}},
            "episode": {
                "return": jnp.array([[9.0, 10.0], [20.0, 9.0]]),
                "length": jnp.array([[1, 4], [2, 1]]),
            },
        },
        rollout_extras=None,
    ),
    last_observation={"eye": jnp.zeros(2)},
)
UPDATES = {
    "replay/log_ratio": jnp.array([1e-6, 0.3, 0.1]),
    "losses/actor": jnp.array([1.0, 2.0, 3.0]),
    "losses/critic": {"food": jnp.array([2.0, 2.0, 2.0])},
}


def metrics(level, percentiles=None):
    config = PPOConfig(logging_level=level, logging_percentiles=percentiles)
    weights = {"a": jnp.array([1.0, 3.0]), "b": jnp.array([[5.0]])}
    return iteration_metrics(UPDATES, ROLLOUT, weights, config)


def test_the_watch_and_the_episodes_are_always_there():
    found = metrics(LoggingLevel.NONE)
    assert found["replay/log_ratio_max"] == pytest.approx(1e-6)
    assert found["replay/log_ratio_last"] == pytest.approx(0.1)
    assert found["episode/count"] == 2
    # The two that ended: returns 10 and 20, lengths 4 and 2.
    assert found["episode/return/mean"] == 15
    assert found["episode/length/mean"] == 3
    assert not any(name.startswith(("env", "net", "rollout_batch")) for name in found)


def test_without_an_ended_episode_there_is_no_mean():
    steps = dataclasses.replace(ROLLOUT.transitions, done=jnp.zeros((2, 2), bool))
    rollout = dataclasses.replace(ROLLOUT, transitions=steps)
    found = iteration_metrics(UPDATES, rollout, {}, PPOConfig())
    assert jnp.isnan(found["episode/return/mean"]) and found["episode/count"] == 0


@pytest.mark.parametrize(
    "level, expected",
    [
        (LoggingLevel.NONE, {"losses/actor/mean": 2, "losses/critic/food/std": 0}),
        (LoggingLevel.ENV_METRICS, {"env/speed/mean": 6, "env/speed/std": 1}),
        (LoggingLevel.NETWORK_METRICS, {"net/0/kl_divergence/mean": 1.5}),
        (
            LoggingLevel.ROLLOUT_STATS,
            {
                "rollout_batch/reward/food/mean": 1,
                "rollout_batch/reward/pain/mean": -1,
                "rollout_batch/action/mean": 0.5,
                "rollout_batch/done_rate": 0.5,
                "rollout_batch/truncation_rate": 0.25,
            },
        ),
        (LoggingLevel.ROLLOUT_OBS, {"rollout_batch/obs/eye/mean": 3}),
        (LoggingLevel.ACTOR_EXTRA, {"loglikelihood/mean": -2, "loglikelihood/std": 1}),
        (LoggingLevel.CRITIC_EXTRA, {"losses/predicted_value/mean": 3}),
        (LoggingLevel.WEIGHTS, {"weights/mean": 3, "weights/std": np.sqrt(8 / 3)}),
    ],
)
def test_each_level_adds_its_numbers(level, expected):
    found = metrics(level)
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-6)


def test_percentiles_stand_for_mean_and_deviation():
    found = metrics(LoggingLevel.ROLLOUT_OBS, percentiles=(0, 50, 100))
    name = "rollout_batch/obs/eye"
    assert [float(found[f"{name}/p{p}"]) for p in (0, 50, 100)] == [1, 2.5, 6]
    assert f"{name}/mean" not in found


def test_booleans_give_the_fraction_that_is_true():
    found = summarize("alive", {"left": jnp.array([True, False, False, False])})
    assert found == {"alive/left": 0.25}
