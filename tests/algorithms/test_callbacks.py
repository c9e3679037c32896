import json
import math
import struct
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from nnx_ppo_fn import TrainConfig
from nnx_ppo_fn.algorithms.callbacks import (
    Callback,
    JSONLines,
    TensorBoard,
    WandB,
    wandb_video_fn,
)
from nnx_ppo_fn.algorithms.types import TrainResult, VideoData
from nnx_ppo_fn.video import write_video


# None of the writers looks into it.
RESULT = object.__new__(TrainResult)


def test_a_callback_of_one_method_ignores_the_rest():
    callback = Callback()
    assert callback.on_iteration({}, 0) is None
    assert callback.on_eval({}, 0) is None
    assert callback.on_end(RESULT) is None


def test_every_iteration_is_a_line_at_once(tmp_path):
    path = tmp_path / "new" / "metrics.jsonl"
    lines = JSONLines(path)
    lines.on_iteration({"loss": 0.5, "count": 3, "return": math.nan}, 64)
    assert path.read_text() == (
        '{"step": 64, "loss": 0.5, "count": 3.0, "return": null}\n'
    )
    lines.on_iteration({"loss": math.inf, "step": 7.0}, 128)
    assert json.loads(path.read_text().splitlines()[1]) == {"step": 128, "loss": None}
    lines.on_end(RESULT)


def test_a_run_that_goes_on_appends(tmp_path):
    path = tmp_path / "metrics.jsonl"
    lines = JSONLines(path)
    lines.on_iteration({"loss": 1.0}, 64)
    lines.on_end(RESULT)
    lines.on_iteration({"loss": 2.0}, 128)
    lines.close()
    again = JSONLines(str(path))
    again.on_iteration({"loss": 3.0}, 192)
    again.close()
    written = [json.loads(line)["loss"] for line in path.read_text().splitlines()]
    assert written == [1.0, 2.0, 3.0]


def test_a_line_that_was_cut_short_spoils_no_other(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": 64}\n{"step": 12')
    lines = JSONLines(path)
    lines.on_iteration({}, 192)
    lines.close()
    assert path.read_text() == '{"step": 64}\n{"step": 12\n{"step": 192}\n'


def points_in(folder):
    """Every `(step, tag, value)` of the event files in a folder, in their order."""
    event_pb2 = pytest.importorskip("tensorboardX.proto.event_pb2")
    points = []
    for path in sorted(folder.glob("events.out.tfevents.*")):
        data = path.read_bytes()
        while data:
            # A record: its length, a checksum, the bytes, another checksum.
            (length,) = struct.unpack("<Q", data[:8])
            event = event_pb2.Event.FromString(data[12 : 12 + length])
            data = data[16 + length :]
            points += [
                (event.step, value.tag, value.simple_value)
                for value in event.summary.value
            ]
    return points


def test_tensorboard_has_every_finite_number(tmp_path):
    pytest.importorskip("tensorboardX")
    folder = tmp_path / "board"
    board = TensorBoard(folder)
    assert not folder.exists()
    board.on_iteration({"losses/actor": 0.25, "episode/return/mean": math.nan}, 64)
    board.on_iteration({"losses/actor": math.inf, "total_steps": 2**33}, 2**33)
    board.on_end(RESULT)
    assert points_in(folder) == [
        (64, "losses/actor", 0.25),
        (2**33, "total_steps", 2**33),
    ]


class FakeRun:
    """What `wandb.init` returns."""

    def __init__(self, options):
        self.options, self.rows, self.finished = options, [], False
        self.config = dict(options.get("config") or {})

    def log(self, row, *, step):
        self.rows.append((step, row))

    def finish(self):
        self.finished = True


@pytest.fixture
def wandb(monkeypatch):
    """A stand-in for the package, with the one run that may be under way."""

    def init(**options):
        if fake.run is None or fake.run.finished:
            fake.run = FakeRun(options)
        return fake.run

    fake = SimpleNamespace(
        run=None,
        init=init,
        log=lambda row, *, step: fake.run.log(row, step=step),
        Video=lambda path, *, format: (Path(path).read_bytes(), format),
    )
    monkeypatch.setitem(sys.modules, "wandb", fake)
    return fake


def test_a_wandb_run_has_the_settings_and_every_number_but_nan(wandb):
    config = TrainConfig(seed=3)
    callback = WandB(project="balance", mode="offline", config=config)
    assert callback.run.options["project"] == "balance"
    assert callback.run.options["mode"] == "offline"
    assert callback.run.config["seed"] == 3
    assert callback.run.config["ppo"]["logging_level"] == ["LOSSES"]
    callback.on_iteration({"losses/actor": 0.5, "episode/return/mean": math.nan}, 64)
    assert callback.run.rows == [(64, {"losses/actor": 0.5})]
    assert not callback.run.finished
    callback.on_end(RESULT)
    assert callback.run.finished


@pytest.mark.parametrize("options", [{}, {"project": "another"}])
def test_a_wandb_run_that_others_began_is_theirs_to_end(wandb, options):
    theirs = wandb.init(project="theirs")
    callback = WandB(config={"seed": 3}, **options)
    assert callback.run is theirs
    callback.on_end(RESULT)
    assert not theirs.finished
    if not options:
        assert theirs.config["seed"] == 3


def test_another_training_is_another_wandb_run(wandb):
    callback = WandB(project="balance", config={"seed": 3})
    runs = []
    for _ in range(2):
        callback.on_iteration({"loss": 0.5}, 64)
        runs.append(callback.run)
        callback.on_end(RESULT)
    assert runs[0] is not runs[1] and runs[0].options == runs[1].options
    assert all(run.rows == [(64, {"loss": 0.5})] and run.finished for run in runs)


def test_videos_need_a_pace(wandb):
    for fps in (0, -1):
        with pytest.raises(ValueError, match=f"fps must be above 0, got {fps}"):
            wandb_video_fn(fps=fps)


def test_videos_go_to_the_wandb_run_as_files(wandb, tmp_path):
    frames = np.zeros((7, 32, 48, 3), np.uint8)
    show = wandb_video_fn(key="balance", fps=50)
    run = wandb.init()
    show(VideoData(frames=frames, step=64, episode_reward=1.0, episode_length=6))
    ((step, row),) = run.rows
    data, kind = row["balance"]
    assert (step, kind) == (64, "mp4")
    expected = tmp_path / "expected.mp4"
    write_video(expected, frames, seconds_per_step=1 / 50)
    assert data == expected.read_bytes()


@pytest.mark.parametrize(
    "make, package, extra",
    [
        (lambda: TensorBoard(Path("board")), "tensorboardX", "tensorboard"),
        (WandB, "wandb", "wandb"),
        (wandb_video_fn, "wandb", "wandb"),
    ],
)
def test_a_missing_package_is_told_before_training(monkeypatch, make, package, extra):
    monkeypatch.setitem(sys.modules, package, None)
    message = rf"needs the package '{package}'.*pip install \"nnx_ppo_fn\[{extra}\]\""
    with pytest.raises(ImportError, match=message):
        make()
