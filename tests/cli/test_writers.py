"""What is written beside the run folder's own files."""

import numpy as np
import pytest
from PIL import Image

from nnx_ppo_fn.algorithms.callbacks import Callback
from nnx_ppo_fn.algorithms.types import VideoData
from nnx_ppo_fn.cli import main, one_seed, writers
from small_runs import FILES, files_in, result_of


BEGUN = ["config.json", "metrics.jsonl"]
CARTPOLE = ["train", "cartpole", "--policy", "mlp", "--quiet"]


@pytest.fixture
def told(monkeypatch):
    """What is given to `train_ppo`, instead of a training."""
    given = {}

    def train(env, network, config, *, log_fn, **options):
        given.update(options)
        result = result_of(env, network, config)
        log_fn({"episode/return/mean": 5.0}, 512)
        for one in options["callbacks"]:
            one.on_iteration({"episode/return/mean": 5.0, "losses/a": 2.0}, 512)
            one.on_eval({"eval/episode_reward/mean": 50.0}, 512)
            one.on_end(result)
        if options["video_fn"] is not None:
            frames = np.zeros((3, 8, 8, 3), np.uint8)
            frames[1] = 255
            options["video_fn"](VideoData(frames, 512, 5.0, 2))
        options["checkpoint_fn"](result.training_state, 512)
        return result

    monkeypatch.setattr(one_seed, "train_ppo", train)
    return given


class Notes(Callback):
    """A writer that remembers."""

    def __init__(self, *place, **options):
        self.place, self.options, self.notes = place, options, []
        made.append(self)

    def on_iteration(self, metrics, step):
        self.notes.append(("iteration", dict(metrics), step))

    def on_eval(self, metrics, step):
        self.notes.append(("eval", dict(metrics), step))

    def on_end(self, result):
        self.notes.append(("end",))


made = []


def test_nothing_is_written_unasked(told, tmp_path):
    assert main([*CARTPOLE, "--out", str(tmp_path / "run")]) == 0
    assert told["callbacks"] == [] and told["video_fn"] is None
    assert files_in(tmp_path / "run") == FILES


def test_writers_see_returns_in_the_unit_of_the_environment(
    told, tmp_path, monkeypatch
):
    made.clear()
    monkeypatch.setattr(writers, "TensorBoard", Notes)
    monkeypatch.setattr(writers, "WandB", Notes)
    folder = tmp_path / "run"
    asked = ["--tensorboard", "--wandb", "poles"]
    assert main([*CARTPOLE, *asked, "--out", str(folder)]) == 0
    tensorboard, wandb = made
    assert tensorboard.place == (folder / "tensorboard",)
    assert wandb.options["project"] == "poles" and wandb.options["name"] == "run"
    # CARTPOLE is quiet, and nothing belongs anywhere but into the run folder.
    assert wandb.options["settings"] == {"silent": True}
    assert wandb.options["dir"] == folder
    for writer in made:
        # The preset scales rewards by 0.1; evaluation sees them as they are.
        assert writer.notes == [
            ("iteration", {"episode/return/mean": 50.0, "losses/a": 2.0}, 512),
            ("eval", {"eval/episode_reward/mean": 50.0}, 512),
            ("end",),
        ]


def test_videos_go_into_the_folder(told, tmp_path, monkeypatch):
    monkeypatch.setattr(writers, "find_spec", lambda _: None)
    folder = tmp_path / "run"
    assert main([*CARTPOLE, "--video.enabled", "--out", str(folder)]) == 0
    (video,) = (folder / "videos").iterdir()
    assert video.name == "after-000000512-steps.gif"
    with Image.open(video) as picture:
        assert picture.n_frames == 3


def test_an_environment_that_cannot_be_drawn_is_refused(tmp_path, one_line):
    asked = ["train", "probe:memory", "--video.enabled", "--n-envs", "8"]
    assert main([*asked, "--out", str(tmp_path / "run")]) == 2
    assert "cannot draw itself" in one_line()
    assert files_in(tmp_path) == []


def test_what_was_written_before_training_began_is_not_kept(
    tmp_path, monkeypatch, one_line
):
    def refuse(*_, callbacks, video_fn, **__):
        callbacks[0].on_iteration({"a": 1.0}, 0)
        video_fn(VideoData(np.zeros((2, 8, 8, 3), np.uint8), 0, 5.0, 1))
        assert files_in(tmp_path / "run") == sorted([*BEGUN, "tensorboard", "videos"])
        raise ValueError("not like this")

    monkeypatch.setattr(one_seed, "train_ppo", refuse)
    asked = ["--tensorboard", "--video.enabled", "--out", str(tmp_path / "run")]
    assert main([*CARTPOLE, *asked]) == 2
    assert "not like this" in one_line()
    assert files_in(tmp_path) == []


def test_a_project_that_cannot_be_is_one_line(tmp_path, monkeypatch, one_line):
    def refuse(**_):
        raise RuntimeError("Invalid project name 'a/b'")

    monkeypatch.setattr(writers, "WandB", refuse)
    assert main([*CARTPOLE, "--wandb", "a/b", "--out", str(tmp_path / "run")]) == 2
    assert "cannot log to Weights & Biases: Invalid project name" in one_line()
    assert files_in(tmp_path) == []
