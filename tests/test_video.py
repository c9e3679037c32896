import subprocess
import sys

import numpy as np
import pytest

from nnx_ppo_fn.video import write_video


def shades(count, height=32, width=48):
    """Pictures that brighten evenly from black to white."""
    levels = np.linspace(0, 255, count).astype(np.uint8)
    return [np.full((height, width, 3), level, np.uint8) for level in levels]


def gif(path):
    """`(durations in ms, brightness)` of every picture."""
    image = pytest.importorskip("PIL.Image")
    durations, levels = [], []
    with image.open(path) as file:
        for index in range(file.n_frames):
            file.seek(index)
            durations.append(file.info["duration"])
            levels.append(np.asarray(file.convert("RGB")).mean())
        assert file.info["loop"] == 0
    return durations, levels


def test_a_gif_shows_every_picture_for_its_time(tmp_path):
    pytest.importorskip("PIL")
    path = tmp_path / "new" / "episode.gif"
    write_video(path, shades(6), seconds_per_step=0.05)
    durations, levels = gif(path)
    assert durations == [50] * 6
    np.testing.assert_allclose(levels, np.linspace(0, 255, 6), atol=1)


@pytest.mark.parametrize(
    "seconds_per_step, pictures, milliseconds",
    [
        # Exactly 50 a second: none is left out.
        (0.02, 101, 2020),
        # 4 steps in a picture, and 26 pictures of 20 ms.
        (0.005, 26, 520),
        # Hundredths of a second have to be rounded; the whole stays in time.
        (1 / 30, 101, 3370),
    ],
)
def test_a_gif_plays_in_time(tmp_path, seconds_per_step, pictures, milliseconds):
    pytest.importorskip("PIL")
    path = tmp_path / "episode.gif"
    write_video(path, shades(101, 4, 4), seconds_per_step=seconds_per_step)
    durations, levels = gif(path)
    assert len(durations) == pictures
    assert sum(durations) == milliseconds
    assert levels[-1] == 255


def test_an_mp4_plays_in_time_in_any_size(tmp_path):
    ffmpeg = pytest.importorskip("imageio_ffmpeg")
    path = tmp_path / "episode.mp4"
    write_video(str(path), np.stack(shades(11, 33, 47)), seconds_per_step=0.05)
    raw = ["-f", "rawvideo", "-pix_fmt", "rgb24", "-"]
    decoded = subprocess.run(
        [ffmpeg.get_ffmpeg_exe(), "-i", path, *raw],
        capture_output=True,
        check=True,
    )
    # Even sizes, as the colour format needs.
    assert b"48x34" in decoded.stderr and b" 20 fps" in decoded.stderr
    shown = np.frombuffer(decoded.stdout, np.uint8).reshape(11, 34, 48, 3)
    expected = np.linspace(0, 255, 11)
    np.testing.assert_allclose(shown.mean(axis=(1, 2, 3)), expected, atol=6)


@pytest.mark.parametrize(
    "name, frames, seconds, message",
    [
        ("episode.avi", shades(2), 0.1, r"ends in \.gif or \.mp4, got 'episode.avi'"),
        ("episode.gif", [], 0.1, "at least one frame"),
        ("episode.gif", shades(2), 0.0, "seconds_per_step must be above 0"),
    ],
)
def test_what_cannot_be_written_is_refused(tmp_path, name, frames, seconds, message):
    with pytest.raises(ValueError, match=message):
        write_video(tmp_path / name, frames, seconds_per_step=seconds)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "name, package", [("a.gif", "PIL"), ("a.mp4", "imageio_ffmpeg")]
)
def test_a_missing_package_names_the_extra(tmp_path, monkeypatch, name, package):
    for module in list(sys.modules):
        if module.split(".")[0] == package:
            monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.setitem(sys.modules, package, None)
    message = rf"needs the package '{package}'.*pip install \"nnx_ppo_fn\[cli\]\""
    with pytest.raises(ImportError, match=message):
        write_video(tmp_path / name, shades(2), seconds_per_step=0.1)


def test_a_file_that_cannot_be_written_says_why_and_is_not_there(tmp_path):
    pytest.importorskip("imageio_ffmpeg")
    name = "a" * 300 + ".mp4"
    with pytest.raises(OSError, match="^ffmpeg failed: File name too long$"):
        write_video(tmp_path / name, shades(2), seconds_per_step=0.1)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("ending", ["gif", "mp4"])
def test_a_folder_of_that_name_stays(tmp_path, ending):
    pytest.importorskip("imageio_ffmpeg")
    path = tmp_path / f"a.{ending}"
    path.mkdir()
    with pytest.raises(OSError, match="directory"):
        write_video(path, shades(2), seconds_per_step=0.1)
    assert list(tmp_path.iterdir()) == [path]
