"""Objects that `train_ppo` tells what happens, and the ones that write it down."""

import json
import math
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, final, TextIO

from .._extras import import_extra
from ..video import write_video
from .config import TrainConfig
from .settings_json import as_json
from .types import Metrics, TrainResult, VideoData


class Callback:
    """What `train_ppo` calls while it trains; every method does nothing by default.

    Derive from it and override what is of interest. Within one iteration the order is
    `log_fn`, `on_iteration`, `on_eval`, `video_fn`, `checkpoint_fn`; several callbacks
    are called in the order in which they are given. A method that fails stops the
    training with a `TrainingStopped` that holds the result so far. To stop it on
    purpose, raise `KeyboardInterrupt`.

    **Example:**

    ```python
    class Print(Callback):
        def on_eval(self, metrics, step):
            print(step, metrics["eval/episode_reward/mean"])

    train_ppo(env, network, callbacks=[Print()])
    ```
    """

    def on_iteration(self, metrics: Metrics, step: int) -> None:
        """Called after every iteration, and once before the first.

        **Arguments:**

        - `metrics`: what `log_fn` is given, a copy of one's own: the iteration's
          numbers, and an evaluation's where one followed. Before the first iteration,
          the first evaluation's alone; no call if evaluation is disabled.
        - `step`: environment steps so far, over all environments.
        """

    def on_eval(self, metrics: Metrics, step: int) -> None:
        """Called after every evaluation.

        **Arguments:**

        - `metrics`: the evaluation's numbers alone.
        - `step`: environment steps so far, over all environments.
        """

    def on_end(self, result: TrainResult) -> None:
        """Called once, when training ends.

        Also after a fault, an interrupt or a callback that failed, and then before the
        error leaves `train_ppo`.

        **Arguments:**

        - `result`: what there is.
        """


@final
class JSONLines(Callback):
    """Writes one JSON object per iteration: `{"step": ..., name: number, ...}`.

    `step` is the number of environment steps, whatever a metric of that name says. A
    number that is not finite becomes `null`. Every line is in the file before the
    next iteration begins, so that a run that dies leaves behind what it had.
    """

    path: Path
    _file: TextIO | None

    def __init__(self, path: str | Path):
        """Opens the file.

        **Arguments:**

        - `path`: what is there already stays, and lines are appended, so that a run
          that goes on has one file. Folders are made.

        **Raises:**

        `OSError` where the file cannot be written.
        """
        self.path = Path(path)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._file = self._open()

    def on_iteration(self, metrics: Mapping[str, int | float], step: int) -> None:
        """Appends one line."""
        if self._file is None:
            self._file = self._open()
        line: dict[str, int | float | None] = {"step": int(step)}
        line |= {name: _finite_or_none(value) for name, value in metrics.items()}
        line["step"] = int(step)
        self._file.write(json.dumps(line, allow_nan=False) + "\n")
        self._file.flush()

    def on_end(self, result: TrainResult) -> None:
        """Closes the file."""
        self.close()

    def close(self) -> None:
        """Closes the file; another iteration opens it again."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _open(self) -> TextIO:
        """Opens at the end; a line that was cut short is not made longer."""
        with self.path.open("ab+") as file:
            if file.tell():
                file.seek(-1, os.SEEK_END)
                if file.read() != b"\n":
                    file.write(b"\n")
        return self.path.open("a", encoding="utf-8")


@final
class TensorBoard(Callback):
    """Writes every finite number of every iteration for TensorBoard.

    What is written is in the file about a second later.
    """

    def __init__(self, folder: str | Path):
        """Checks that it can write.

        **Arguments:**

        - `folder`: where the event files go, for `tensorboard --logdir`.

        **Raises:**

        `ImportError` without the extra `tensorboard`.
        """
        self.folder = Path(folder)
        self._package = import_extra(
            "tensorboardX", extra="tensorboard", purpose="writing for TensorBoard"
        )
        self._writer: Any = None

    def on_iteration(self, metrics: Metrics, step: int) -> None:
        """Writes one point per finite number."""
        if self._writer is None:
            self._writer = self._package.SummaryWriter(str(self.folder), flush_secs=1)
        for name, value in metrics.items():
            if math.isfinite(value):
                self._writer.add_scalar(name, value, step)

    def on_end(self, result: TrainResult) -> None:
        """Closes the event file; another iteration opens a new one."""
        if self._writer is not None:
            self._writer.close()
            self._writer = None


@final
class WandB(Callback):
    """Logs every number of every iteration to Weights & Biases; NaN is left out.

    It begins a run when it is made, or goes on with one that is under way and that
    others end. `wandb_video_fn` adds videos to it. Another training with the same
    object is another run, with the same settings.

    - `run`: the `wandb` run.
    """

    run: Any

    def __init__(
        self, *, config: TrainConfig | Mapping[str, Any] | None = None, **options: Any
    ):
        """Begins the run.

        **Arguments:**

        - `config`: settings to show with the run.
        - `options`: for `wandb.init`, such as `project`, `name` or `mode="offline"`.

        **Raises:**

        `ImportError` without the extra `wandb`.
        """
        self._package = _import_wandb()
        self._settings = as_json(config) if isinstance(config, TrainConfig) else config
        self._options = options
        self._begin()

    def on_iteration(self, metrics: Metrics, step: int) -> None:
        """Logs one row."""
        if self._has_ended:
            self._begin()
        numbers = {name: x for name, x in metrics.items() if not math.isnan(x)}
        self.run.log(numbers, step=step)

    def on_end(self, result: TrainResult) -> None:
        """Ends the run, unless it was under way before."""
        if self._begun_here and not self._has_ended:
            self.run.finish()
            self._has_ended = True

    def _begin(self) -> None:
        under_way = self._package.run
        if under_way is None or self._options:
            self.run = self._package.init(config=self._settings, **self._options)
        else:
            self.run = under_way
            self.run.config.update(dict(self._settings or {}))
        self._begun_here = self.run is not under_way
        self._has_ended = False


def wandb_video_fn(
    key: str = "eval_video", fps: int = 30
) -> Callable[[VideoData], None]:
    """A `video_fn` for `train_ppo` that logs to Weights & Biases.

    **Arguments:**

    - `key`: the name of the video.
    - `fps`: pictures per second; 1 over the environment's seconds per step shows an
      episode at its own pace.

    **Returns:**

    A function of a `VideoData`. It logs to the run that is under way when it is called:
    `WandB`'s, or that of `wandb.init`.

    **Raises:**

    `ImportError` without the extra `wandb`, `ValueError` unless `fps` is above 0.

    **Example:**

    ```python
    config = TrainConfig(video=VideoConfig(enabled=True))
    train_ppo(
        env,
        network,
        config,
        video_fn=wandb_video_fn(fps=50),
        callbacks=[WandB(project="balance", config=config)],
    )
    ```
    """
    if not fps > 0:
        raise ValueError(f"fps must be above 0, got {fps}")
    wandb = _import_wandb()

    def video_fn(data: VideoData) -> None:
        with TemporaryDirectory() as folder:
            path = Path(folder) / "episode.mp4"
            write_video(path, data.frames, seconds_per_step=1 / fps)
            # Which copies the file.
            wandb.log({key: wandb.Video(str(path), format="mp4")}, step=data.step)

    return video_fn


def _import_wandb() -> Any:
    return import_extra("wandb", extra="wandb", purpose="logging to Weights & Biases")


def _finite_or_none(value: int | float) -> float | None:
    number = float(value)
    return number if math.isfinite(number) else None
