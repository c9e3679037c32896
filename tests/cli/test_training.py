"""A run from the command line: what it prints, and what it leaves."""

import json
import os
import shutil
import sys

import jax.numpy as jnp
import jax.random as jr
import jax.tree_util as jtu
import numpy as np
import pytest
from matplotlib.figure import Figure

from nnx_ppo_fn.algorithms.evaluation import evaluate
from nnx_ppo_fn.algorithms.stopping import (
    TrainingFault,
    TrainingInterrupted,
    TrainingStopped,
)
from nnx_ppo_fn.cli import main, one_seed
from nnx_ppo_fn.cli.progress import number
from nnx_ppo_fn.envs import MemoryProbe
from nnx_ppo_fn.presets import build
from nnx_ppo_fn.runs import load_run, read_metrics, RunFolder
from small_runs import (
    cut_short,
    FILES,
    files_in,
    first_decision,
    result_of,
    SMALL,
    trained_at_once,
)


def test_a_run_says_what_it_does_and_how_it_went(run):
    folder, text, result = run
    begin, *middle, trained, evaluated, end = text.splitlines()
    assert begin.startswith("environment   probe:memory")
    assert "1,024 steps in 8 environments, seed 3" in text
    assert middle.index("compiling ...") == 3
    assert middle[-1].startswith("1,024 of 1,024 steps | evaluation return")
    assert "(stops above 0.0003)" in middle[-1]
    assert trained.startswith("trained       1,024 steps in ")
    reward = result.eval_history[-1]["eval/episode_reward/mean"]
    assert evaluated.startswith(f"evaluation    return {number(reward)} ")
    assert end == f"run folder    {folder}"
    assert "\x1b" not in text


def test_a_run_counts_its_parameters(run):
    # An LSTM of 64 on 2 numbers, and two heads of 64 on it: a policy of 2, a value.
    cell = 4 * (64 * 2 + 64 * 64 + 64)
    heads = 2 * (64 * 64 + 64) + (64 * 2 + 2) + (64 + 1)
    assert f"lstm with {cell + heads:,} trainable parameters" in run[1]


def test_a_run_leaves_its_four_files(run):
    assert files_in(run[0]) == FILES
    assert (run[0] / "learning_curve.png").read_bytes().startswith(b"\x89PNG")


def test_metrics_are_lines_of_strict_json(run):
    def refuse(constant):
        raise AssertionError(f"{constant} is not JSON")

    folder, _, result = run
    text = (folder / "metrics.jsonl").read_text()
    lines = [json.loads(line, parse_constant=refuse) for line in text.splitlines()]
    assert [line["step"] for line in lines] == [0, 512, 1024]
    assert lines[-1]["replay/log_ratio_max"] <= 1e-4
    for name in training_metrics(lines[-1]):
        assert lines[-1][name] == result.final_metrics[name]


def training_metrics(line):
    return [name for name in line if name.startswith(("losses/", "eval/", "replay/"))]


def test_load_run_gives_back_what_was_trained(run):
    folder, _, result = run
    env, network, config = load_run(folder)
    assert env == MemoryProbe()
    built = build(
        "probe:memory", "lstm", key=jr.key(0), total_steps=1000, n_envs=8, seed=3
    )
    assert config == built.config
    observation = jr.normal(jr.key(8), (5, env.observation_size))
    loaded = first_decision(network, observation)
    trained = first_decision(result.network, observation)
    for a, b in zip(jtu.tree_leaves(loaded), jtu.tree_leaves(trained), strict=True):
        np.testing.assert_array_equal(a, b)
    untrained = first_decision(built.network, observation)
    assert not jnp.array_equal(loaded.value_estimates, untrained.value_estimates)


def test_a_loaded_network_can_be_evaluated(run):
    env, network, _ = load_run(run[0])
    metrics = evaluate(env, network, key=jr.key(0), n_envs=4, max_episode_length=20)
    assert metrics["eval/lifespan/mean"] == env.max_episode_length


def log_failed(result):
    stop = TrainingStopped("log_fn failed; look into .result", result)
    stop.__cause__ = OSError("the disk is full")
    return stop


@pytest.mark.parametrize(
    ("how", "code", "complaint"),
    [
        (TrainingInterrupted, 130, "interrupted after 512 steps; {} keeps the run"),
        (
            lambda result: TrainingFault("the reward of environment 3 is bad", result),
            1,
            "error: the reward of environment 3 is bad; {} keeps the run",
        ),
        (log_failed, 1, "error: OSError: the disk is full; {} keeps the run"),
    ],
    ids=["interrupted", "fault", "log failed"],
)
def test_what_there_is_is_kept(how, code, complaint, capsys, tmp_path, monkeypatch):
    initial = []

    def train(env, network, config, **options):
        initial.append(network)
        return cut_short(how)(env, network, config, **options)

    monkeypatch.setattr(one_seed, "train_ppo", train)
    folder = tmp_path / "run"
    assert main([*SMALL, "--out", str(folder)]) == code
    printed = capsys.readouterr()
    assert printed.err == f"nnx-ppo-fn: {complaint.format(folder)}\n"
    assert printed.out.splitlines()[-1] == f"run folder    {folder}"
    assert files_in(folder) == FILES
    last = (folder / "metrics.jsonl").read_text().splitlines()[-1]
    assert json.loads(last) == {
        "step": 512,
        "episode/return/mean": None,
        "losses/critic/mean": None,
    }
    _, network, _ = load_run(folder)
    observation = jnp.ones((2, 2))
    before = first_decision(initial[0], observation).value_estimates
    assert not jnp.allclose(
        first_decision(network, observation).value_estimates, before
    )


def test_quiet_prints_the_folder_alone(capsys, tmp_path, monkeypatch):
    monkeypatch.setattr(one_seed, "train_ppo", cut_short(TrainingInterrupted))
    folder = tmp_path / "run"
    assert main([*SMALL, "--quiet", "--out", str(folder)]) == 130
    assert capsys.readouterr().out == f"{folder}\n"


def test_runs_have_a_folder_of_their_own_by_default(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(one_seed, "train_ppo", cut_short(TrainingInterrupted))
    main([*SMALL, "--policy", "mlp", "--seed", "4", "--quiet"])
    (folder,) = (tmp_path / "runs").iterdir()
    assert folder.name.startswith("probe-memory-mlp-seed4-")


def test_training_returns_are_in_the_unit_of_the_environment(tmp_path, monkeypatch):
    def train(env, network, config, *, log_fn, **_):
        log_fn({"episode/return/mean": 5.0, "episode/length/mean": 50.0}, 4096)
        raise TrainingInterrupted(result_of(env, network, config))

    monkeypatch.setattr(one_seed, "train_ppo", train)
    main(["train", "cartpole", "--policy", "mlp", "--out", str(tmp_path / "run")])
    (line,) = read_metrics(tmp_path / "run")
    # The preset scales cart-pole's rewards by 0.1.
    assert line == {
        "step": 4096,
        "episode/return/mean": 50.0,
        "episode/length/mean": 50.0,
    }


def full(*_, **__):
    raise OSError(28, "no space left")


def test_a_network_that_cannot_be_saved_is_told(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(RunFolder, "save_network", full)
    monkeypatch.setattr(one_seed, "train_ppo", trained_at_once)
    folder = tmp_path / "run"
    assert main([*SMALL, "--quiet", "--out", str(folder)]) == 1
    assert capsys.readouterr() == (
        f"{folder}\n",
        f"nnx-ppo-fn: error: cannot write the network into {folder}: no space left\n",
    )


def test_a_picture_that_cannot_be_drawn_is_told(tmp_path, monkeypatch, one_line):
    monkeypatch.setattr(Figure, "savefig", full)
    monkeypatch.setattr(one_seed, "train_ppo", trained_at_once)
    folder = tmp_path / "run"
    assert main([*SMALL, "--quiet", "--out", str(folder)]) == 1
    picture = folder / "learning_curve.png"
    assert one_line().endswith(
        f"cannot write {picture}: no space left; {folder} keeps the run"
    )
    assert files_in(folder) == sorted(set(FILES) - {picture.name})


def test_a_folder_taken_away_while_training_has_the_network(
    tmp_path, monkeypatch, one_line
):
    folder = tmp_path / "run"

    def train(*arguments, **options):
        result = trained_at_once(*arguments, **options)
        shutil.rmtree(folder)
        return result

    monkeypatch.setattr(one_seed, "train_ppo", train)
    assert main([*SMALL, "--quiet", "--out", str(folder)]) == 1
    assert f"metrics.jsonl: No such file or directory; {folder} keeps" in one_line()
    load_run(folder)


def test_whoever_does_not_listen_stops_nothing(tmp_path, monkeypatch, one_line):
    monkeypatch.setattr(one_seed, "train_ppo", trained_at_once)
    listener, pipe = os.pipe()
    os.close(listener)
    folder = tmp_path / "run"
    with os.fdopen(pipe, "w") as stdout, monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", stdout)
        assert main([*SMALL, "--out", str(folder)]) == 1
    assert one_line() == (
        f"nnx-ppo-fn: error: cannot print: Broken pipe; {folder} keeps the run"
    )
    assert files_in(folder) == FILES


@pytest.mark.parametrize("error", [MemoryError(), RuntimeError("RESOURCE_EXHAUSTED:")])
def test_too_little_memory_is_one_line(error, tmp_path, monkeypatch, one_line):
    def train(*_, **__):
        raise error

    monkeypatch.setattr(one_seed, "train_ppo", train)
    assert main([*SMALL, "--out", str(tmp_path / "run")]) == 1
    assert "there is not enough memory" in one_line()
    assert files_in(tmp_path) == []
