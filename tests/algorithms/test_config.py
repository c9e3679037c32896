import dataclasses

import jax
import jax.numpy as jnp
import pytest

from nnx_ppo_fn import EvalConfig, PPOConfig, TrainConfig


@pytest.mark.parametrize(
    "settings, message",
    [
        ({"n_envs": 18, "n_minibatches": 4}, "n_envs=18.*try n_envs=16 or 20"),
        ({"n_envs": 3, "n_minibatches": 4}, "try n_envs=4"),
        ({"n_envs": 0}, "n_envs must be at least 1, got 0"),
        ({"total_steps": -1}, "total_steps must be at least 0, got -1"),
        ({"gae_lambda": 1.5}, r"gae_lambda must be in \[0.0, 1.0\], got 1.5"),
        ({"learning_rate": -1e-3}, "learning_rate must be at least 0.0"),
        ({"clip_range": float("nan")}, "clip_range must be at least 0.0, got nan"),
    ],
)
def test_settings_that_cannot_train_are_refused_at_once(settings, message):
    with pytest.raises(ValueError, match=message):
        PPOConfig(**settings)


def test_an_unknown_choice_is_refused():
    with pytest.raises((TypeError, ValueError), match="truncation"):
        PPOConfig(truncation="ignore")  # pyright: ignore[reportArgumentType]


def test_a_count_must_be_an_integer():
    with pytest.raises(Exception, match="rollout_length"):
        PPOConfig(rollout_length=2.5)  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="eval.every_steps"):
        EvalConfig(every_steps=0)


def test_configurations_compare_hash_and_replace_by_value():
    config = TrainConfig(seed=3)
    same = TrainConfig(ppo=PPOConfig(), seed=3)
    assert config == same and hash(config) == hash(same)
    assert config != dataclasses.replace(config, seed=4)
    faster = dataclasses.replace(config.ppo, learning_rate=jnp.array([1e-3, 1e-4]))
    assert faster.learning_rate.shape == (2,)


def test_a_changed_coefficient_does_not_compile_anew():
    traces = 0

    @jax.jit
    def double(config):
        nonlocal traces
        traces += 1
        return config.ppo.learning_rate * 2

    config = TrainConfig()
    double(config)
    slower = dataclasses.replace(config.ppo, learning_rate=3e-5, clip_range=0.3)
    assert double(dataclasses.replace(config, ppo=slower)) == pytest.approx(6e-5)
    assert traces == 1
