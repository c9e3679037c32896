"""`nnx-ppo-fn train`, and the run folder that it leaves."""

import io
import json
import math
import sys

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import jax.tree_util as jtu
import numpy as np
import pytest

from nnx_ppo_fn.algorithms.evaluation import evaluate
from nnx_ppo_fn.algorithms.loop import (
    TrainingFault,
    TrainingInterrupted,
    TrainResult,
)
from nnx_ppo_fn.algorithms.ppo import train_ppo
from nnx_ppo_fn.algorithms.step import new_training_state
from nnx_ppo_fn.cli import main, training
from nnx_ppo_fn.cli.display import Live
from nnx_ppo_fn.cli.progress import duration, number, Progress
from nnx_ppo_fn.envs import MemoryProbe
from nnx_ppo_fn.networks._errors import CompositionError
from nnx_ppo_fn.presets import build
from nnx_ppo_fn.runs import load_run, read_metrics, RunFolder
from nnx_ppo_fn.testing import LawViolation


FILES = ["config.json", "learning_curve.png", "metrics.jsonl", "network.eqx"]
SMALL = ["train", "probe:memory", "--n-envs", "8", "--total-steps", "1000"]


def files_in(folder):
    return sorted(path.name for path in folder.iterdir())


def first_decision(network, observation):
    """What a fresh network decides, sampling included."""
    keys = jr.split(jr.key(4), len(observation))
    return network(network.initialize_state(keys), observation).output


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A whole small run: its folder, its output, and what `train_ppo` returned."""
    folder = tmp_path_factory.mktemp("run") / "probe"
    results, stdout = [], io.StringIO()

    def remembered(*arguments, **options):
        results.append(train_ppo(*arguments, **options))
        return results[0]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(training, "train_ppo", remembered)
        patch.setattr(sys, "stdout", stdout)
        code = main([*SMALL, "--seed", "3", "--out", str(folder)])
    assert code == 0
    return folder, stdout.getvalue(), results[0]


def test_a_run_says_what_it_does_and_how_it_went(run):
    folder, text, result = run
    begin, *middle, trained, evaluated, end = text.splitlines()
    assert begin.startswith("environment   probe:memory")
    assert "1,024 steps in 8 environments, seed 3" in text
    assert middle.index("compiling ...") == 3
    assert middle[-1].startswith("1,024 of 1,024 steps | evaluation return")
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
    assert (
        config
        == build(
            "probe:memory", "lstm", key=jr.key(0), total_steps=1000, n_envs=8, seed=3
        ).config
    )
    observation = jr.normal(jr.key(8), (5, env.observation_size))
    loaded = first_decision(network, observation)
    trained = first_decision(result.network, observation)
    for a, b in zip(jtu.tree_leaves(loaded), jtu.tree_leaves(trained), strict=True):
        np.testing.assert_array_equal(a, b)
    fresh = build("probe:memory", "lstm", key=jr.key(0)).network
    untrained = first_decision(fresh, observation)
    assert not jnp.array_equal(loaded.value_estimates, untrained.value_estimates)


def test_a_loaded_network_can_be_evaluated(run):
    env, network, _ = load_run(run[0])
    metrics = evaluate(env, network, key=jr.key(0), n_envs=4, max_episode_length=20)
    assert metrics["eval/lifespan/mean"] == env.max_episode_length


def test_weights_of_another_network_are_refused(run, tmp_path):
    for name in FILES:
        (tmp_path / name).write_bytes((run[0] / name).read_bytes())
    description = json.loads((tmp_path / "config.json").read_text())
    description["network"]["hidden_size"] = 32
    (tmp_path / "config.json").write_text(json.dumps(description))
    with pytest.raises(ValueError, match="does not fit the network"):
        load_run(tmp_path)


def test_a_folder_without_a_run_is_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match="has no config.json"):
        load_run(tmp_path)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ([], "COMMAND"),
        (["tran"], "invalid choice: 'tran'"),
        (["train", "hidden-cartpol"], "Did you mean 'hidden-cartpole'"),
        (["train", "--policy", "lstn"], "Did you mean 'lstm'"),
        (["train", "--total-steps", "0"], "must be at least 1, got 0"),
        (["train", "--total-steps", "-5"], "must be at least 1, got -5"),
        (["train", "--total-steps", "many"], "must be a whole number"),
        (["train", "--total", "5"], "unrecognized arguments: --total"),
        (["train", "--seed", "-1"], "must be between 0 and"),
        (["train", "--seed", str(2**31)], "must be between 0 and"),
        (["train", "--n-envs", "6"], "try n_envs=4 or 8"),
        (["train", "--learning-rate", "nan"], "must be a positive number"),
        (["train", "--learning-rate", "0"], "must be a positive number"),
    ],
)
def test_impossible_arguments(arguments, complaint, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(arguments) == 2
    assert complaint in one_line(capsys)
    assert files_in(tmp_path) == []


def one_line(capsys):
    """The only line on the standard error, which says who complains."""
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("nnx-ppo-fn: error: ")
    return line


def test_a_folder_with_a_run_is_not_overwritten(run, capsys):
    before = (run[0] / "metrics.jsonl").read_bytes()
    assert main([*SMALL, "--out", str(run[0])]) == 2
    assert "already holds a run" in one_line(capsys)
    assert (run[0] / "metrics.jsonl").read_bytes() == before


def test_a_folder_with_other_things_is_not_used(tmp_path, capsys):
    (tmp_path / "thesis.tex").touch()
    assert main([*SMALL, "--out", str(tmp_path)]) == 2
    assert "not an empty folder" in one_line(capsys)
    assert main([*SMALL, "--out", str(tmp_path / "thesis.tex")]) == 2
    assert "not an empty folder" in one_line(capsys)
    assert main([*SMALL, "--out", str(tmp_path / "thesis.tex" / "run")]) == 2
    assert "thesis.tex" in one_line(capsys)
    assert files_in(tmp_path) == ["thesis.tex"]


def test_a_missing_extra_of_the_command_line_is_named(capsys, monkeypatch):
    monkeypatch.setattr(training, "find_spec", {"matplotlib": "found"}.get)
    assert main(SMALL) == 2
    line = one_line(capsys)
    assert "needs rich;" in line and 'pip install "nnx_ppo_fn[cli]"' in line


def test_a_missing_extra_of_an_environment_is_named(capsys, monkeypatch):
    monkeypatch.delitem(sys.modules, "nnx_ppo_fn.envs._gymnax", raising=False)
    monkeypatch.delattr("nnx_ppo_fn.envs._gymnax", raising=False)
    monkeypatch.setitem(sys.modules, "gymnax", None)
    assert main(["train", "gymnax:CartPole-v1"]) == 2
    assert 'pip install "nnx_ppo_fn[gymnax]"' in one_line(capsys)


@pytest.mark.parametrize(
    "error",
    [
        CompositionError("expected x [B, 4],\n  got [256, 3]"),
        LawViolation("carry", "it grows", cause="a list that is appended to"),
    ],
)
def test_what_training_refuses_is_one_line(error, capsys, tmp_path, monkeypatch):
    def refuse(*_, **__):
        raise error

    monkeypatch.setattr(training, "train_ppo", refuse)
    folder = tmp_path / "run"
    assert main([*SMALL, "--out", str(folder)]) == 2
    assert " ".join(str(error).split()) in one_line(capsys)
    assert not folder.exists()


def test_an_error_in_the_middle_is_not_hidden(tmp_path, monkeypatch):
    def fail(*_, log_fn, **__):
        log_fn({"losses/critic/mean": 1.0}, 512)
        raise ValueError("a fault of the program")

    monkeypatch.setattr(training, "train_ppo", fail)
    with pytest.raises(ValueError, match="a fault of the program"):
        main([*SMALL, "--out", str(tmp_path / "run")])
    assert read_metrics(tmp_path / "run") == [{"step": 512, "losses/critic/mean": 1.0}]


def cut_short(how):
    """A `train_ppo` that stops after one iteration of a network that it moved."""

    def train(env, network, config, *, log_fn, **_):
        log_fn({"eval/episode_reward/mean": 0.5, "eval/episode_reward/std": 1.0}, 0)
        log_fn({"episode/return/mean": math.nan, "losses/critic/mean": math.inf}, 512)
        raise how(result_of(env, moved(network), config))

    return train


def result_of(env, network, config):
    """What `train_ppo` would return, without its compilation."""
    state = new_training_state(env, network, config, key=jr.key(0))
    return TrainResult(state, network, {}, [], 512, 1, 2.0, 1.0)


def moved(network):
    return jtu.tree_map(
        lambda leaf: leaf + 1 if eqx.is_inexact_array(leaf) else leaf, network
    )


@pytest.mark.parametrize(
    ("how", "code", "complaint"),
    [
        (TrainingInterrupted, 130, "nnx-ppo-fn: interrupted after 512 steps"),
        (
            lambda result: TrainingFault("the reward of environment 3 is bad", result),
            1,
            "nnx-ppo-fn: error: the reward of environment 3 is bad",
        ),
    ],
    ids=["interrupted", "fault"],
)
def test_what_there_is_is_kept(how, code, complaint, capsys, tmp_path, monkeypatch):
    initial = []

    def train(env, network, config, **options):
        initial.append(network)
        return cut_short(how)(env, network, config, **options)

    monkeypatch.setattr(training, "train_ppo", train)
    folder = tmp_path / "run"
    assert main([*SMALL, "--out", str(folder)]) == code
    printed = capsys.readouterr()
    assert printed.err.splitlines() == [complaint]
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


def test_ctrl_c_before_training_keeps_nothing(capsys, monkeypatch, tmp_path):
    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(training, "build", interrupt)
    assert main([*SMALL, "--out", str(tmp_path / "run")]) == 130
    assert "before training began" in one_line(capsys)
    assert files_in(tmp_path) == []


def test_quiet_prints_the_folder_alone(capsys, tmp_path, monkeypatch):
    monkeypatch.setattr(training, "train_ppo", cut_short(TrainingInterrupted))
    folder = tmp_path / "run"
    assert main([*SMALL, "--quiet", "--out", str(folder)]) == 130
    assert capsys.readouterr().out == f"{folder}\n"


def test_runs_have_a_folder_of_their_own_by_default(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(training, "train_ppo", cut_short(TrainingInterrupted))
    main([*SMALL, "--policy", "mlp", "--seed", "4", "--quiet"])
    (folder,) = (tmp_path / "runs").iterdir()
    assert folder.name.startswith("probe-memory-mlp-seed4-")


def test_training_returns_are_in_the_unit_of_the_environment(tmp_path, monkeypatch):
    def train(env, network, config, *, log_fn, **_):
        log_fn({"episode/return/mean": 5.0, "episode/length/mean": 50.0}, 4096)
        raise TrainingInterrupted(result_of(env, network, config))

    monkeypatch.setattr(training, "train_ppo", train)
    main(["train", "cartpole", "--policy", "mlp", "--out", str(tmp_path / "run")])
    (line,) = read_metrics(tmp_path / "run")
    # The preset scales cart-pole's rewards by 0.1.
    assert line == {
        "step": 4096,
        "episode/return/mean": 50.0,
        "episode/length/mean": 50.0,
    }


def test_two_runs_cannot_begin_in_one_folder(tmp_path, getkey):
    preset = build("probe:memory", "mlp", key=getkey()).preset
    first = RunFolder(tmp_path, "probe:memory", "mlp", preset)
    with pytest.raises(FileExistsError):
        RunFolder(tmp_path, "probe:memory", "mlp", preset)
    first.discard()
    assert not tmp_path.exists()


def test_the_live_display_shows_the_latest_numbers(capsys, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "120")
    display = Live(Progress(1024))
    display.start()
    display.say("[not markup]")
    display.update({"eval/episode_reward/mean": 12.5}, 0)
    display.update({"episode/return/mean": math.nan, "losses/critic/mean": 2.0}, 512)
    display.stop()
    text = capsys.readouterr().out
    for part in ("[not markup]", "training", "512 of 1,024 steps", "12.5", "2.00"):
        assert part in text
    assert "nan" not in text


def test_progress_estimates_the_time_left(monkeypatch):
    times = iter([100.0, 102.0, 110.0])
    monkeypatch.setattr("time.perf_counter", lambda: next(times))
    progress = Progress(10_000)
    progress.update({}, 0)
    assert progress.pace == ""
    progress.update({}, 4000)
    # 4000 steps in 2 s leave 6000 steps, 3 s.
    assert progress.pace == "2,000 steps/s, 3 s left"
    progress.update({}, 10_000)
    assert progress.pace == "1,000 steps/s, 0 s left"


def test_numbers_and_durations_are_short():
    values = [0.0, 487.25, 9.876, -0.0123, 1234567.0, 1e-7]
    shown = ["0.0", "487.2", "9.88", "-0.012", "1.2e+06", "1.0e-07"]
    assert [number(value) for value in values] == shown
    assert [duration(s) for s in (8.0, 200.0, 7500.0)] == [
        "8 s",
        "3 min 20 s",
        "2 h 05 min",
    ]


def test_help_names_all_policies(capsys):
    with pytest.raises(SystemExit) as end:
        main(["train", "--help"])
    assert end.value.code == 0
    text = capsys.readouterr().out
    for word in ("mlp", "lstm", "gru", "variational", "hidden-cartpole"):
        assert word in text
