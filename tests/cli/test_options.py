"""Every setting is an option of `train`, with its text and its preset's default."""

import dataclasses

import pytest

from nnx_ppo_fn.algorithms.config import (
    EvalConfig,
    LoggingLevel,
    PPOConfig,
    TrainConfig,
    VideoConfig,
)
from nnx_ppo_fn.cli import main
from nnx_ppo_fn.cli.docstrings import field_texts
from nnx_ppo_fn.cli.options import parse_train, TrainOptions
from nnx_ppo_fn.cli.parsing import flags
from nnx_ppo_fn.presets import NetworkOptions, Preset, preset


def names_of(owner, *left_out):
    return [f.name for f in dataclasses.fields(owner) if f.name not in left_out]


FIELDS = [
    *[("", PPOConfig, name) for name in names_of(PPOConfig)],
    *[
        ("", TrainConfig, name)
        for name in names_of(TrainConfig, "ppo", "eval", "video")
    ],
    *[("", NetworkOptions, name) for name in names_of(NetworkOptions)],
    *[("", Preset, name) for name in names_of(Preset, "config", "network")],
    *[("eval.", EvalConfig, name) for name in names_of(EvalConfig)],
    *[("video.", VideoConfig, name) for name in names_of(VideoConfig)],
]


def test_every_field_has_a_text_and_an_option():
    options = set(flags(TrainOptions))
    for prefix, owner, name in FIELDS:
        assert field_texts(owner)[name]
        assert "--" + (prefix + name).replace("_", "-") in options


def test_the_help_shows_every_option_and_the_defaults_of_the_preset(capsys):
    with pytest.raises(SystemExit):
        main(["train", "--help", "pendulum"])
    text = " ".join(capsys.readouterr().out.replace("│", " ").split())
    for flag in flags(TrainOptions):
        assert f" {flag}" in text
    expected = preset("pendulum").config.ppo
    assert (
        expected.discounting_factor != preset("cartpole").config.ppo.discounting_factor
    )
    assert (
        "reward discount per step, 0 to 1. "
        f"(default: {expected.discounting_factor})" in text
    )
    assert "(default: LOSSES THROUGHPUT)" in text


@pytest.mark.parametrize("env", ["hidden-cartpole", "pendulum"])
def test_without_options_the_settings_are_the_preset(env):
    request = parse_train([env])
    assert request.settings == preset(env)
    assert request.decided == dict.fromkeys(
        ["every_steps", "max_episode_length", "iterations_per_call"]
    )
    assert (request.policy, request.seed, request.out) == ("lstm", 17, None)


def test_options_change_the_settings():
    request = parse_train(
        "--n-envs 1_28 --learning-rate 3e-4 --total-steps 1e5 --gradient-clipping none "
        "--no-normalize-advantages --truncation mask --logging-level losses GRAD_NORM "
        "--logging-percentiles 0 50 100 --hidden-size 32 --reward-scale 0.5 "
        "--eval.n-envs 7 --eval.no-enabled --video.enabled --video.height 64 --seed 5 "
        "--weight_decay=0.1 --checkpoint-every-steps 9 pendulum --quiet".split()
    )
    base = preset("pendulum")
    ppo = dataclasses.replace(
        base.config.ppo,
        n_envs=128,
        learning_rate=3e-4,
        total_steps=100_000,
        gradient_clipping=None,
        weight_decay=0.1,
        normalize_advantages=False,
        truncation="mask",
        logging_level=LoggingLevel.LOSSES | LoggingLevel.GRAD_NORM,
        logging_percentiles=(0, 50, 100),
    )
    config = dataclasses.replace(
        base.config,
        ppo=ppo,
        eval=dataclasses.replace(base.config.eval, n_envs=7, enabled=False),
        video=dataclasses.replace(base.config.video, enabled=True, height=64),
        seed=5,
        checkpoint_every_steps=9,
    )
    network = dataclasses.replace(base.network, hidden_size=32)
    assert request.settings == Preset(config, network, 0.5)
    assert request.env == "pendulum" and request.quiet


def test_what_is_said_is_not_decided():
    request = parse_train(
        "--eval.every-steps 10_000 --eval.max-episode-length 20 "
        "--iterations-per-call 3".split()
    )
    assert request.decided == {
        "every_steps": 10_000,
        "max_episode_length": 20,
        "iterations_per_call": 3,
    }
