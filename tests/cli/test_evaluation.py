"""The command `eval`."""

import json
from contextlib import closing

import jax.random as jr
import numpy as np
import pytest
from PIL import Image

from nnx_ppo_fn.algorithms.evaluation import evaluate
from nnx_ppo_fn.cli import evaluation, main
from nnx_ppo_fn.cli.progress import number
from nnx_ppo_fn.envs import CartPole, RenderingError
from nnx_ppo_fn.presets import build
from nnx_ppo_fn.runs import load_run, RunFolder


def test_the_numbers_are_those_of_evaluate(run, capsys):
    folder = run[0]
    assert main(["eval", str(folder), "--episodes", "5", "--seed", "2"]) == 0
    title, header, returns, lengths, truncated = capsys.readouterr().out.splitlines()
    assert title == ("probe:memory, lstm: 5 episodes by the likeliest actions, seed 2")
    env, network, _ = load_run(folder)
    metrics = evaluate(
        env,
        network,
        key=jr.key(2),
        n_envs=5,
        max_episode_length=env.max_episode_length,
        percentiles=(0, 100),
    )
    assert header.split() == ["mean", "std", "min", "max"]
    assert returns.split() == ["return"] + [
        number(float(metrics[f"eval/episode_reward/{end}"]))
        for end in ("mean", "std", "p0", "p100")
    ]
    # Every episode of the probe ends by itself after four steps.
    assert lengths.split() == ["length", "4.00", "0.0", "4.00", "4.00"]
    assert truncated.split() == ["truncated", "0%", "of", "the", "episodes"]


@pytest.fixture
def played(monkeypatch):
    """What is given to `evaluate`, instead of `evaluate`."""
    given = {}

    def play(env, network, **options):
        given.update(options)
        names = ("mean", "std", "p0", "p100")
        rewards = ("eval/episode_reward", "eval/episode_reward/speed", "eval/lifespan")
        values = {f"{name}/{end}": 1.0 for name in rewards for end in names}
        return {**values, "eval/truncated": 0.25}

    monkeypatch.setattr(evaluation, "evaluate", play)
    return given


def test_options_reach_the_episodes(run, played, capsys):
    assert main(["eval", str(run[0]), "--stochastic", "--episodes", "1_000"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].endswith("1,000 episodes with noise, seed 0")
    assert [line.split("  ")[0] for line in lines[2:]] == [
        "return",
        "length",
        "return of speed",
        "truncated",
    ]
    assert not played["deterministic"] and played["n_envs"] == 1000


@pytest.fixture
def balanced(tmp_path, getkey):
    """The folder of a run that can be drawn."""
    setup = build("cartpole", "mlp", key=getkey())
    with closing(RunFolder(tmp_path / "run", "cartpole", "mlp", setup)) as folder:
        folder.save_network(setup.network)
    return folder.path


def test_the_film_is_one_of_the_episodes(balanced, tmp_path, played, capsys):
    film = tmp_path / "films" / "a.gif"
    size = ["--height", "60", "--width", "90"]
    assert main(["eval", str(balanced), "--render", str(film), *size]) == 0
    last = capsys.readouterr().out.splitlines()[-1]
    env, network, _ = load_run(balanced)
    metrics = evaluate(
        env,
        network,
        key=played["key"],
        n_envs=1,
        max_episode_length=500,
    )
    steps = int(metrics["eval/lifespan/mean"])
    assert last == f"{film}: an episode of {steps} steps, return {number(steps)}"
    with Image.open(film) as picture:
        assert picture.size == (90, 60)
        assert np.asarray(picture.convert("RGB")).std() > 0


def test_a_film_of_another_kind_is_refused_before_anything_is_played(
    balanced, one_line, played
):
    folder = balanced / "films.gif"
    folder.mkdir()
    assert main(["eval", str(balanced), "--render", "a.avi"]) == 2
    assert "--render: expected a file name that ends in .gif or .mp4" in one_line()
    config = balanced / "config.json"
    for film, complaint in (
        (config / "a.gif", f"{config} is not a folder but a file"),
        (folder, f"{folder} is a folder. Choose another name."),
    ):
        assert main(["eval", str(balanced), "--render", str(film)]) == 2
        assert complaint in one_line()
    assert main(["eval", str(balanced), "--height", "1e5"]) == 2
    assert "--height must be at most 4096" in one_line()
    assert not played


def test_where_nothing_can_be_drawn_the_reason_is_told(
    balanced, one_line, played, tmp_path, monkeypatch
):
    def refuse(*_, **__):
        raise RenderingError("there is no OpenGL")

    monkeypatch.setattr(CartPole, "render", refuse)
    film = tmp_path / "a.gif"
    assert main(["eval", str(balanced), "--render", str(film)]) == 2
    assert f"cannot write {film}: there is no OpenGL" in one_line()


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"network": {"hidden_sise": 3}}, "no setting 'hidden_sise' (did you mean"),
        ({"train": 3}, "expected the settings of TrainConfig, got 3"),
        ({"policy": "lstn"}, "did you mean 'lstm'"),
        ({"environment": None}, "does not say which 'environment' it was"),
    ],
)
def test_a_description_that_is_none(change, complaint, balanced, one_line):
    path = balanced / "config.json"
    changed = {**json.loads(path.read_text()), **change}
    kept = {name: value for name, value in changed.items() if value is not None}
    path.write_text(json.dumps(kept))
    assert main(["eval", str(balanced)]) == 2
    assert complaint in one_line()


def test_what_cannot_be_evaluated(run, one_line, tmp_path):
    folder = str(run[0])
    assert main(["eval"]) == 2
    assert "which run?" in one_line()
    assert main(["eval", str(tmp_path / "nothing")]) == 2
    assert "there is no folder" in one_line()
    assert main(["eval", str(tmp_path)]) == 2
    assert "has no config.json" in one_line()
    assert main(["eval", str(run[0].parent)]) == 2
    assert f"choose one, such as {folder}" in one_line()
    assert main(["eval", folder, "--episodes", "0"]) == 2
    assert "--episodes must be at least 1, got 0" in one_line()
    assert main(["eval", folder, "--render", "a.gif"]) == 2
    assert "probe:memory cannot draw itself" in one_line()
