"""Settings survive JSON, and names that are none are told."""

import json

import jax.numpy as jnp
import pytest

from nnx_ppo_fn import TrainConfig
from nnx_ppo_fn.algorithms.config import LoggingLevel, PPOConfig, VideoConfig
from nnx_ppo_fn.algorithms.settings_json import as_json, from_json
from nnx_ppo_fn.presets import NetworkOptions


CHANGED = TrainConfig(
    ppo=PPOConfig(
        gradient_clipping=0.5,
        logging_level=LoggingLevel.LOSSES | LoggingLevel.WEIGHTS,
        logging_percentiles=(0, 50, 100),
    ),
    video=VideoConfig(enabled=True),
    seed=3,
)


@pytest.mark.parametrize(
    "settings",
    [
        TrainConfig(),
        CHANGED,
        TrainConfig(ppo=PPOConfig(logging_level=LoggingLevel.NONE)),
        NetworkOptions(hidden_size=3, activation="relu"),
    ],
    ids=["defaults", "changed", "no metrics", "network"],
)
def test_what_is_written_is_read(settings):
    written = json.loads(json.dumps(as_json(settings)))
    assert from_json(type(settings), written) == settings


def test_settings_are_objects_by_name():
    written = as_json(CHANGED)
    assert written["video"] == {
        "enabled": True,
        "every_steps": 200_000,
        "episode_length": 1000,
        "height": 480,
        "width": 640,
    }
    assert written["ppo"]["logging_level"] == ["LOSSES", "WEIGHTS"]
    assert written["ppo"]["logging_percentiles"] == [0, 50, 100]
    assert as_json({"seed": jnp.int32(3)}) == {"seed": 3}


def test_what_is_missing_has_its_default():
    assert from_json(TrainConfig, {"ppo": {"n_envs": 64}}) == TrainConfig(
        ppo=PPOConfig(n_envs=64)
    )


@pytest.mark.parametrize(
    ("written", "complaint"),
    [
        ({"video": {"widht": 3}}, "VideoConfig has no setting 'widht' .*'width'"),
        ({"ppo": {"logging_level": ["LOSES"]}}, "LoggingLevel has no 'LOSES' .*LOSSES"),
        ({"ppo": 3}, "expected the settings of PPOConfig, got 3"),
        ({"ppo": {"n_envs": 0}}, "n_envs must be at least 1"),
    ],
)
def test_what_no_settings_are_is_refused(written, complaint):
    with pytest.raises(ValueError, match=complaint):
        from_json(TrainConfig, written)
