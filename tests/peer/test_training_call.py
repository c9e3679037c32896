"""The call that trains takes what the original's takes."""

import dataclasses
import inspect

import pytest
from nnx_ppo.algorithms import config as original, ppo

from nnx_ppo_fn import EvalConfig, PPOConfig, train_ppo, TrainConfig, VideoConfig


GONE = {
    "EvalConfig": {"logging_level", "logging_percentiles"},
    "VideoConfig": {"render_kwargs"},
}


def default(field):
    if field.default_factory is not dataclasses.MISSING:
        return type(field.default_factory()).__name__
    return getattr(field.default, "name", field.default)


@pytest.mark.parametrize("ours", [TrainConfig, PPOConfig, EvalConfig, VideoConfig])
def test_settings_have_the_original_names_and_defaults(ours):
    theirs = getattr(original, ours.__name__)
    found = {field.name: default(field) for field in dataclasses.fields(ours)}
    expected = {field.name: default(field) for field in dataclasses.fields(theirs)}
    gone = GONE.get(ours.__name__, set())
    assert expected.keys() - found.keys() == gone
    assert {name: found[name] for name in expected.keys() - gone} == {
        name: expected[name] for name in expected.keys() - gone
    }


def test_train_ppo_has_the_original_arguments():
    theirs = inspect.signature(ppo.train_ppo).parameters
    ours = inspect.signature(train_ppo).parameters
    assert theirs.keys() - ours.keys() == {"networks"}
    assert list(ours)[:3] == ["env", "network", "config"]
