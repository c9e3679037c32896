"""Run folders: what is written is what is read."""

import io
import json
import math
import os
import shutil
from pathlib import Path

import jax.random as jr
import pytest

from nnx_ppo_fn.algorithms.config import VideoConfig
from nnx_ppo_fn.presets import build
from nnx_ppo_fn.runs import expect_unused, load_run, RunFolder, series
from small_runs import files_in


@pytest.fixture
def described(tmp_path, getkey):
    """A function that writes a run without training, and reads its description."""

    def write(env_name, policy):
        setup = build(env_name, policy, key=getkey())
        folder = RunFolder(tmp_path / "run", env_name, policy, setup)
        folder.save_network(setup.network)
        folder.close()
        return folder.path, json.loads((folder.path / "config.json").read_text())

    return write


@pytest.mark.parametrize(
    ("env_name", "policy", "unused"),
    [
        ("cartpole", "lstm", {"latent_size", "kl_weight", "min_std"}),
        ("pendulum", "gru", {"latent_size", "kl_weight"}),
        ("pendulum", "variational", set()),
    ],
)
def test_only_options_in_use_are_written(env_name, policy, unused, described):
    _, description = described(env_name, policy)
    assert (
        set(description["network"])
        == {
            "hidden_size",
            "latent_size",
            "kl_weight",
            "activation",
            "entropy_weight",
            "min_std",
            "policy_scale",
        }
        - unused
    )


def test_what_was_left_open_is_written_as_decided(described):
    _, description = described("cartpole", "mlp")
    assert description["train"]["ppo"]["replay_tolerance"] is None
    assert description["decided"]["replay_tolerance"] == 3e-4


def test_weights_of_another_network_are_refused(described):
    folder, description = described("probe:memory", "lstm")
    description["network"]["hidden_size"] = 32
    (folder / "config.json").write_text(json.dumps(description))
    with pytest.raises(ValueError, match="damaged, or of another network"):
        load_run(folder)


def test_a_run_from_before_there_were_videos_is_read(described):
    folder, description = described("probe:memory", "mlp")
    del description["train"]["video"]
    (folder / "config.json").write_text(json.dumps(description))
    assert load_run(folder)[2].video == VideoConfig()


def test_settings_that_are_none_are_named(described):
    folder, description = described("probe:memory", "mlp")
    description["network"]["hiden_size"] = 3
    (folder / "config.json").write_text(json.dumps(description))
    with pytest.raises(ValueError, match="no setting 'hiden_size' .*'hidden_size'"):
        load_run(folder)


def test_a_series_has_the_steps_of_its_values():
    lines = [{"step": 0, "a": 1.0}, {"step": 1, "b": 2.0}, {"step": 2, "a": 3.0}]
    lines += [{"step": 3, "a": math.nan}, {"step": 4, "a": math.inf}]
    assert series(lines, "a") == ([0, 2], [1.0, 3.0])


def test_a_folder_without_a_run_is_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match="has no config.json"):
        load_run(tmp_path)


def test_two_runs_cannot_begin_in_one_folder(tmp_path, getkey):
    setup = build("probe:memory", "mlp", key=getkey())
    first = RunFolder(tmp_path, "probe:memory", "mlp", setup)
    with pytest.raises(FileExistsError):
        RunFolder(tmp_path, "probe:memory", "mlp", setup)
    first.discard()
    assert not tmp_path.exists()


def test_what_others_put_into_a_folder_is_not_thrown_away(tmp_path, getkey):
    setup = build("probe:memory", "mlp", key=getkey())
    folder = RunFolder(tmp_path / "run", "probe:memory", "mlp", setup)
    (folder.path / "notes.txt").touch()
    (folder.path / "videos").mkdir()
    (folder.path / "videos" / "a.gif").touch()
    folder.discard()
    assert files_in(folder.path) == ["notes.txt"]


def test_weights_that_cannot_be_written_leave_those_before(described, monkeypatch):
    path, _ = described("probe:memory", "mlp")
    before = (path / "network.eqx").read_bytes()
    setup = build("probe:memory", "mlp", key=jr.key(1))

    def fill(path, data):
        path.touch()
        raise OSError(28, "no space left")

    monkeypatch.setattr(Path, "write_bytes", fill)
    folder = object.__new__(RunFolder)
    folder.path = path
    with pytest.raises(OSError, match="no space left"):
        folder.save_network(setup.network)
    assert files_in(path) == ["config.json", "metrics.jsonl", "network.eqx"]
    assert (path / "network.eqx").read_bytes() == before


def test_weights_that_are_damaged_are_told(described):
    folder, _ = described("probe:memory", "mlp")
    weights = folder / "network.eqx"
    for damaged in (weights.read_bytes()[:500], b"", b"nonsense"):
        weights.write_bytes(damaged)
        with pytest.raises(ValueError, match="network.eqx is damaged, or of another"):
            load_run(folder)


@pytest.mark.parametrize(
    "change",
    [
        {"environment": 3},
        {"environment": "cartpol"},
        {"policy": None},
        {"network": []},
        {"network": {"hidden_size": "large"}},
        {"network": {"hidden_size": -3}},
        {"network": {"activation": 7}},
        {"train": {"ppo": {"logging_level": "FOO"}}},
        {"train": {"ppo": {"logging_level": 3}}},
        {"train": {"ppo": {"n_envs": None}}},
    ],
)
def test_a_description_that_was_edited_is_told(change, described):
    folder, description = described("probe:memory", "mlp")
    (folder / "config.json").write_text(json.dumps({**description, **change}))
    with pytest.raises(ValueError, match="config.json is damaged or of another vers"):
        load_run(folder)


def test_a_folder_that_was_taken_away_is_made_again(tmp_path, getkey):
    setup = build("probe:memory", "mlp", key=getkey())
    folder = RunFolder(tmp_path / "run", "probe:memory", "mlp", setup)
    shutil.rmtree(folder.path)
    folder.save_network(setup.network)
    folder.close()
    assert load_run(folder.path)[2] == setup.config


class Full(io.StringIO):
    """A file on a full disk, which tells so only in the end."""

    def close(self):
        super().close()
        raise OSError(28, "no space left")


def test_a_full_disk_does_not_block_the_folder(tmp_path, getkey, monkeypatch):
    setup = build("probe:memory", "mlp", key=getkey())
    with monkeypatch.context() as patch:
        touch = Path.touch
        patch.setattr(Path, "open", lambda path, *_, **__: touch(path) or Full())
        with pytest.raises(OSError, match="no space left"):
            RunFolder(tmp_path / "run", "probe:memory", "mlp", setup)
    assert files_in(tmp_path) == []


def test_a_folder_that_cannot_be_written_into_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(PermissionError, match="cannot be written into. Choose"):
        expect_unused(tmp_path / "new" / "run")
