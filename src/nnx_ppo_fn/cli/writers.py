"""What else is written while training, on request: TensorBoard, W&B, videos."""

from collections.abc import Callable
from importlib.util import find_spec
from typing import final

from ..algorithms.callbacks import Callback, TensorBoard, WandB, wandb_video_fn
from ..algorithms.types import TrainResult, VideoData
from ..presets import Setup
from ..runs import RunFolder, TENSORBOARD, VIDEOS
from ..video import write_video
from .options import Request
from .preparation import unscaled
from .usage import refusing


def callbacks(request: Request, setup: Setup, folder: RunFolder) -> list[Callback]:
    """The callbacks that were asked for; metrics come in the environment's own unit."""
    chosen: list[Callback] = []
    if request.tensorboard:
        chosen.append(TensorBoard(folder.path / TENSORBOARD))
    if request.wandb is not None:
        with refusing(Exception, saying="cannot log to Weights & Biases"):
            wandb = WandB(
                config=setup.config,
                project=request.wandb,
                name=folder.path.name,
                dir=folder.path,
                settings={"silent": request.quiet},
            )
        chosen.append(wandb)
    return [_Unscaled(callback, setup) for callback in chosen]


def video_function(
    request: Request, setup: Setup, folder: RunFolder
) -> Callable[[VideoData], None] | None:
    """Writes videos into the run folder, and to W&B if that is in use.

    `None` where no videos were asked for.
    """
    if not setup.config.video.enabled:
        return None
    seconds = float(getattr(setup.eval_env, "seconds_per_step", 1 / 30))
    suffix = ".mp4" if find_spec("imageio_ffmpeg") else ".gif"
    to_wandb = wandb_video_fn(fps=max(round(1 / seconds), 1)) if request.wandb else None

    def write(data: VideoData) -> None:
        name = f"after-{data.step:09}-steps{suffix}"
        write_video(folder.path / VIDEOS / name, data.frames, seconds_per_step=seconds)
        if to_wandb is not None:
            to_wandb(data)

    return write


@final
class _Unscaled(Callback):
    """Passes everything on, with returns in the environment's own unit."""

    def __init__(self, inner: Callback, setup: Setup):
        self._inner = inner
        self._setup = setup

    def on_iteration(self, metrics: dict[str, int | float], step: int) -> None:
        """Passes an iteration on."""
        self._inner.on_iteration(unscaled(metrics, self._setup), step)

    def on_eval(self, metrics: dict[str, int | float], step: int) -> None:
        """Passes an evaluation on, whose rewards are as they are."""
        self._inner.on_eval(metrics, step)

    def on_end(self, result: TrainResult) -> None:
        """Passes the end on."""
        self._inner.on_end(result)
