"""Writes pictures that follow one another to a GIF or an MP4 file."""

import math
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from jaxtyping import UInt8

from ._extras import import_extra
from ._files import replacing


Frames: TypeAlias = UInt8[np.ndarray, "frames height width 3"]
"""Pictures in the order in which they are shown: red, green and blue, 0 to 255."""

# What browsers still show at its own pace in a GIF, and more than the eye asks for.
_SHORTEST_SECONDS = 0.02


def write_video(
    path: str | Path,
    frames: Frames | Sequence[UInt8[np.ndarray, "height width 3"]],
    *,
    seconds_per_step: float,
) -> None:
    """Writes a video that plays as fast as what it shows.

    Above 50 pictures a second some are left out; the last one never is.

    **Arguments:**

    - `path`: a name that ends in `.gif` or `.mp4`. Folders are made, and a file of that
      name is replaced.
    - `frames`: one picture per step, all of one size.
    - `seconds_per_step`: how long a step takes in what is shown.

    **Raises:**

    - `ValueError` if the name ends otherwise, or there is nothing to show.
    - `OSError` if the file cannot be written.
    - `ImportError` if the package that writes such files is not installed; both come
      with the extra `cli`.

    **Example:**

    ```python
    episode = record_episode(env, network, key=jr.key(0), max_episode_length=500)
    write_video("episode.gif", episode.frames(env), seconds_per_step=0.02)
    ```
    """
    path = Path(path)
    expect_video_name(path)
    if not 0 < seconds_per_step < math.inf:
        raise ValueError(
            f"seconds_per_step must be above 0 and finite, got {seconds_per_step}"
        )
    if not len(frames):
        raise ValueError("expected at least one frame, got none")
    pictures = frames if isinstance(frames, np.ndarray) else np.stack(frames)
    if pictures.ndim != 4 or pictures.shape[-1] != 3 or pictures.dtype != np.uint8:
        raise ValueError(
            "expected frames uint8 [frames, height, width, 3], got "
            f"{pictures.dtype} {list(pictures.shape)}"
        )
    # Rounded first, so that 50 pictures a second do not become 25 by a last bit.
    stride = max(1, math.ceil(round(_SHORTEST_SECONDS / seconds_per_step, 6)))
    shown = pictures[(len(pictures) - 1) % stride :: stride]
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as unfinished:
        write = _WRITERS[path.suffix.lower()]
        write(unfinished, shown, stride * seconds_per_step)


def expect_video_name(path: Path) -> None:
    """Raises `ValueError` unless `write_video` knows what the name ends in."""
    if path.suffix.lower() not in _WRITERS:
        raise ValueError(
            f"expected a file name that ends in {' or '.join(_WRITERS)}, got "
            f"{path.name!r}"
        )


def _write_gif(path: Path, frames: Frames, seconds: float) -> None:
    image: Any = import_extra("PIL.Image", extra="cli", purpose="writing a GIF")
    # A GIF counts in hundredths of a second: rounding the moments at which pictures
    # change, rather than each duration, keeps the whole in time.
    changes = np.round(np.arange(len(frames) + 1) * seconds * 100).astype(int)
    first, *rest = (image.fromarray(frame) for frame in frames)
    first.save(
        path,
        format="GIF",
        save_all=True,
        append_images=rest,
        duration=(np.diff(changes) * 10).tolist(),
        loop=0,
    )


def _write_mp4(path: Path, frames: Frames, seconds: float) -> None:
    ffmpeg: Any = import_extra("imageio_ffmpeg", extra="cli", purpose="writing an MP4")
    # The colour format that every player reads has half the resolution: even sizes.
    odd = [(0, size % 2) for size in frames.shape[1:3]]
    even = np.pad(frames, [(0, 0), *odd, (0, 0)], "edge")
    _, height, width, _ = even.shape
    pixels = ["-f", "rawvideo", "-pix_fmt", "rgb24", "-s", f"{width}x{height}"]
    pace = ["-r", str(1 / seconds)]
    encoded = ["-c:v", "libx264", "-pix_fmt", "yuv420p", "-movflags", "+faststart"]
    encoded += ["-f", "mp4"]
    command = [ffmpeg.get_ffmpeg_exe(), "-y", "-loglevel", "error", *pixels, *pace]
    # Through a pipe of our own: imageio's writer forks, of which JAX warns.
    done = subprocess.run(
        [*command, "-i", "-", *encoded, path.absolute()],
        input=even.reshape(-1).data,
        stderr=subprocess.PIPE,
    )
    if done.returncode:
        # It says the same in several lines, and in the last one why.
        _, _, reason = done.stderr.decode(errors="replace").strip().rpartition(": ")
        raise OSError(f"ffmpeg failed: {reason}")


_WRITERS: Mapping[str, Callable[[Path, Frames, float], None]] = {
    ".gif": _write_gif,
    ".mp4": _write_mp4,
}
