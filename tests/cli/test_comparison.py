"""The command `plot`."""

from nnx_ppo_fn.cli import main


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
    assert "cannot write" in one_line()
    assert main(["plot", str(run[0]), "--metric", "eval/length"]) == 2
    assert "has no metric 'eval/length'" in one_line()
