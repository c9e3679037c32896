import dataclasses
import re

import jax
import jax.numpy as jnp
import jaxtyping
import numpy as np
import pytest

from nnx_ppo_fn import EvalConfig, PPOConfig, TrainConfig
from nnx_ppo_fn.algorithms import config
from nnx_ppo_fn.algorithms.config import VideoConfig


@pytest.mark.parametrize(
    "settings, message",
    [
        ({"n_envs": 2**16, "rollout_length": 2**16}, "must be less than 4294967296"),
        ({"n_envs": 18, "n_minibatches": 4}, "n_envs=18.*try n_envs=16 or 20"),
        ({"n_envs": 3, "n_minibatches": 4}, "try n_envs=4"),
        (
            {"n_envs": 4, "n_minibatches": 4, "rollout_length": 1},
            "a minibatch of a single step",
        ),
        (
            {"n_envs": 16, "n_minibatches": 4, "n_shards": 3},
            "n_envs=16 .*n_minibatches=4 .* 4 env.*n_shards=3 .*multiple of 12",
        ),
        ({"replay_chunk_length": 0}, "replay_chunk_length must be at least 1, got 0"),
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


def test_types_are_looked_at_without_a_type_checker_too():
    """The runtime checker would speak first, so the checks are called by themselves."""
    with pytest.raises(ValueError, match="truncation must be 'bootstrap' or"):
        config.expect_choice("truncation", "ignore", ("bootstrap", "mask", "nnx_ppo"))
    for wrong in ("1e-3", None, True):
        with pytest.raises(TypeError, match="learning_rate must be a number"):
            config.expect_range("learning_rate", wrong, 0.0, 1.0)
    with pytest.raises(ValueError, match="learning_rate must be in"):
        config.expect_range("learning_rate", np.float32(-1), 0.0, 1.0)
    for wrong in (2.5, True, "4"):
        with pytest.raises(TypeError, match="rollout_length must be an integer"):
            config.expect_count("rollout_length", wrong, least=1)
    with pytest.raises(TypeError, match=r"write TrainConfig\(ppo=PPOConfig"):
        config.expect_config(PPOConfig())
    with pytest.raises(TypeError, match="expected a TrainConfig, got dict"):
        config.expect_config({})


def test_an_evaluation_needs_an_interval():
    with pytest.raises(ValueError, match="eval.every_steps"):
        EvalConfig(every_steps=0)


def test_configurations_compare_hash_and_replace_by_value():
    settings = TrainConfig(seed=3)
    same = TrainConfig(ppo=PPOConfig(), seed=3)
    assert settings == same and hash(settings) == hash(same)
    assert settings != dataclasses.replace(settings, seed=4)
    faster = dataclasses.replace(settings.ppo, learning_rate=jnp.array([1e-3, 1e-4]))
    assert faster.learning_rate.shape == (2,)


def test_a_changed_coefficient_does_not_compile_anew():
    traces = 0

    @jax.jit
    def double(settings):
        nonlocal traces
        traces += 1
        return settings.ppo.learning_rate * 2

    settings = TrainConfig()
    double(settings)
    slower = dataclasses.replace(settings.ppo, learning_rate=3e-5, clip_range=0.3)
    assert double(dataclasses.replace(settings, ppo=slower)) == pytest.approx(6e-5)
    assert traces == 1


@pytest.mark.parametrize("name", ["every_steps", "episode_length", "height", "width"])
def test_a_video_of_nothing_is_refused(name):
    with pytest.raises(ValueError, match=f"video.{name} must be at least 1, got 0"):
        VideoConfig(**{name: 0})


@pytest.mark.parametrize("settings", [PPOConfig, EvalConfig, VideoConfig, TrainConfig])
def test_every_setting_is_explained(settings):
    """The command line takes its help from the same lines."""
    explained = re.findall(
        r"^ +- ((?:`\w+`(?:, )?)+): \w", settings.__doc__, re.MULTILINE
    )
    names = [name for group in explained for name in re.findall(r"`(\w+)`", group)]
    assert names == [field.name for field in dataclasses.fields(settings)]


@pytest.mark.parametrize(
    "kind, name",
    [
        (PPOConfig, "normalize_advantages"),
        (PPOConfig, "combine_advantages"),
        (PPOConfig, "replay_rematerialize"),
        (config.EvalConfig, "enabled"),
        (config.EvalConfig, "deterministic"),
        (config.VideoConfig, "enabled"),
    ],
)
def test_a_switch_is_a_bool(kind, name):
    jaxtyping.config.update("jaxtyping_disable", True)
    try:
        for wrong in ("no", 0, None):
            with pytest.raises(TypeError, match=f"{name} must be True or False, got"):
                kind(**{name: wrong})
    finally:
        jaxtyping.config.update("jaxtyping_disable", False)


def test_rematerialising_needs_chunks():
    """By itself it would compute everything twice and save nothing."""
    with pytest.raises(ValueError, match="set replay_chunk_length as well"):
        PPOConfig(replay_rematerialize=True)
    assert PPOConfig(replay_rematerialize=True, replay_chunk_length=4)
