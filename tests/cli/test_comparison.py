"""The command `plot`."""

import itertools as it
import shutil
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure

from nnx_ppo_fn.cli import comparison, main
from nnx_ppo_fn.cli.grouping import Curve, Group
from nnx_ppo_fn.cli.style import new_figure, save
from nnx_ppo_fn.cli.usage import UsageError


SEEDS = it.count()


def test_a_run_is_drawn_and_summed_up(run, tmp_path, capsys):
    folder, _, result = run
    picture = tmp_path / "pictures" / "a.png"
    assert main(["plot", str(folder.parent), "--out", str(picture)]) == 0
    assert picture.read_bytes().startswith(b"\x89PNG")
    title, line, last = capsys.readouterr().out.splitlines()
    assert title == "probe:memory · lstm: eval/episode_reward/mean"
    assert line.startswith("  1 seed  ") and line.endswith(" after 1,024 steps")
    assert last == f"picture: {picture}"


def test_another_metric_is_drawn(run, tmp_path, capsys):
    picture = tmp_path / "a.png"
    metric = ["--metric", "losses/critic/mean"]
    assert main(["plot", str(run[0]), "--out", str(picture), *metric]) == 0
    assert "probe:memory · lstm: losses/critic/mean" in capsys.readouterr().out
    assert picture.exists()


def test_what_cannot_be_drawn(run, tmp_path, one_line):
    assert main(["plot"]) == 2
    assert "which runs?" in one_line()
    assert main(["plot", str(run[0]), "--out", str(tmp_path / "a.xyz")]) == 2
    assert "expected a name that ends in .png, .svg or .pdf" in one_line()
    assert main(["plot", str(run[0]), "--out", str(tmp_path / "a")]) == 2
    assert "expected a name that ends in .png, .svg or .pdf" in one_line()
    assert main(["plot", str(run[0]), "--out", str(run[0] / "network.eqx/a.png")]) == 2
    assert "is not a folder but a file" in one_line()
    assert main(["plot", str(run[0]), "--metric", "eval/length"]) == 2
    assert "has no metric 'eval/length'" in one_line()


def curve(*points):
    """A run of a seed of its own."""
    steps, values = np.array(points, np.float64).T
    return Curve(Path(), next(SEEDS), steps, values)


def drawn(*curves):
    """The panel of one group of runs."""
    figures = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(comparison, "save", lambda figure, _: figures.append(figure))
        group = Group({"environment": "a", "policy": "b"}, curves)
        comparison.draw_comparison([group], Path("a.png"), metric="m")
    (panel,) = figures[0].axes
    return panel


def test_a_run_of_one_point_is_a_dot_with_its_step_below():
    panel = drawn(curve((4096, 2.0)))
    (line,) = panel.lines
    assert line.get_marker() == "o"
    assert list(panel.get_xticks()) == [4096]


def test_seeds_without_common_steps_are_drawn_without_a_mean():
    panel = drawn(curve((0, 1.0), (1, 2.0)), curve((5, 1.0), (6, 2.0)))
    assert len(panel.lines) == 2
    (text,) = panel.get_legend().get_texts()
    assert text.get_text() == "2 seeds, no steps in common"
    assert not panel.texts


def test_a_picture_that_cannot_be_written_leaves_nothing(tmp_path, monkeypatch):
    def fill(figure, path, **_):
        path.touch()
        raise OSError(28, "no space left")

    monkeypatch.setattr(Figure, "savefig", fill)
    with pytest.raises(UsageError, match="cannot write .*a.png: no space left"):
        save(new_figure((1.0, 1.0), ""), tmp_path / "a.png")
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_run_is_left_out_of_the_picture(run, tmp_path, one_line):
    shutil.copytree(run[0], tmp_path / "good")
    shutil.copytree(run[0], tmp_path / "bad")
    (tmp_path / "bad" / "config.json").write_text("[]")
    assert main(["plot", str(tmp_path), "--out", str(tmp_path / "a.png")]) == 0
    assert str(tmp_path / "bad" / "config.json") in one_line("left out: ")
