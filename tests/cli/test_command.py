"""What the command line refuses, and how it says so."""

import io
import sys

import pytest

import nnx_ppo_fn
from nnx_ppo_fn.cli import command, main, one_seed, preparation
from nnx_ppo_fn.networks._errors import CompositionError
from nnx_ppo_fn.presets import POLICIES
from nnx_ppo_fn.runs import read_metrics
from nnx_ppo_fn.testing import LawViolation
from small_runs import files_in, SMALL


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["tran"], "did you mean 'train'"),
        (["--vers"], "did you mean '--version'"),
        (["train", "hidden-cartpol"], "id you mean 'hidden-cartpole'"),
        (["train", "--policy", "lstn"], "id you mean 'lstm'"),
        (["train", "--policy", "lstn", "--seed", "1"], "id you mean 'lstm'"),
        (["train", "--total-steps", "0"], "must be at least 1, got 0"),
        (["train", "--total-steps", "-5"], "must be at least 1, got -5"),
        (["train", "--total-steps", "many"], "must be a whole number"),
        (["train", "--total-steps", "1.5"], "must be a whole number"),
        (["train", "--total-steps", "inf"], "must be a whole number"),
        (["train", "--total", "5"], "unrecognized arguments: --total 5 (did you mean"),
        (["train", "pendulum", "cartpole"], "unrecognized arguments: cartpole"),
        (["train", "--seed"], "--seed needs a value"),
        (["train", "--seed", "-1"], "--seed must be between 0 and"),
        (["train", "--seed", str(2**31)], "must be between 0 and"),
        (["train", "--n-envs", "6"], "try n_envs=4 or 8"),
        (["train", "--learning-rate", "nan"], "must be a positive number"),
        (["train", "--learning-rate", "0"], "must be a positive number"),
        (["train", "--clip-range", "wide"], "--clip-range must be a number such as"),
        (["train", "--entropy-weight", "nan"], "--entropy-weight must be a number"),
        (["train", "--policy-scale", "inf"], "--policy-scale must be a number such as"),
        (["train", "--hidden-size", "1e12"], "must be at most 1048576, got 10000"),
        (["train", "--n-envs", "1e30"], "--n-envs must be at most 2147483647, got"),
        (["train", "--video.height", "1e5"], "--video.height must be at most 4096"),
        (["train", "--logging-level"], "--logging-level needs a value"),
        (["train", "--logging-percentiles", "--quiet"], "percentiles needs a value"),
        (["train", "--normalize-advantages=true"], "advantages takes no value, got"),
        (["train", "--quiet=1"], "--quiet takes no value, got '1'"),
        (["train", "--eval.no-enabled=1"], "--eval.no-enabled takes no value, got"),
        (["train", "probe:memory", "--video.enabled"], "leave --video.enabled away"),
        (["train", "--gae-lambda", "2"], "gae_lambda must be in [0.0, 1.0], got 2.0"),
        (["train", "--truncation", "msk"], "did you mean 'mask'"),
        (["train", "--logging-level", "LOSES"], "did you mean 'LOSSES'"),
        (["train", "--logging-percentiles", "0", "101"], "between 0 and 100, got 101"),
        (["train", "--activation", "tahn"], "tanh"),
        (["train", "--eval.n-env", "4"], "did you mean '--eval.n-envs'"),
        (["train", "--out", ""], "must be the name of a folder, got nothing"),
        (["train", "--seeds", "2", "--wandb", "mine"], "--wandb is for one seed"),
        (["train", "--seeds", "2", "--seed", str(2**31 - 1)], "the last seed must be"),
    ],
)
def test_impossible_arguments(arguments, complaint, one_line, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(arguments) == 2
    assert complaint in one_line()
    assert files_in(tmp_path) == []


def test_nothing_at_all_is_a_call_for_help(capsys):
    with pytest.raises(SystemExit) as end:
        main([])
    assert end.value.code == 0
    text = capsys.readouterr().out
    for word in ("train", "eval", "plot", "envs", "check", "--version"):
        assert word in text


def test_the_version(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"nnx-ppo-fn {nnx_ppo_fn.__version__}\n"


@pytest.mark.parametrize("name", ["", "train", "eval", "plot", "envs", "check"])
def test_help_fits_into_a_terminal(name, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit):
        main([name, "--help"] if name else ["--help"])
    _, _, text = capsys.readouterr().out.partition("\n\n")
    assert text and max(map(len, text.splitlines())) <= 80


def test_help_names_all_policies(capsys):
    with pytest.raises(SystemExit) as end:
        main(["train", "--help"])
    assert end.value.code == 0
    text = capsys.readouterr().out
    for word in (*POLICIES, "hidden-cartpole"):
        assert word in text


@pytest.fixture
def nothing_is_built(monkeypatch):
    def refuse(*_, **__):
        raise AssertionError("the folder is looked at first")

    monkeypatch.setattr(preparation, "build", refuse)


@pytest.mark.usefixtures("nothing_is_built")
def test_a_folder_with_a_run_is_not_overwritten(tmp_path, one_line):
    (tmp_path / "config.json").write_text("{}")
    assert main([*SMALL, "--out", str(tmp_path)]) == 2
    assert "already holds a run" in one_line()
    assert (tmp_path / "config.json").read_text() == "{}"


@pytest.mark.usefixtures("nothing_is_built")
def test_a_folder_with_other_things_is_not_used(tmp_path, one_line):
    thesis = tmp_path / "thesis.tex"
    thesis.touch()
    assert main([*SMALL, "--out", str(tmp_path)]) == 2
    assert f"{tmp_path} is not an empty folder" in one_line()
    assert main([*SMALL, "--out", str(thesis)]) == 2
    assert f"{thesis} is not a folder but a file. Choose" in one_line()
    assert main([*SMALL, "--out", str(thesis / "runs" / "a")]) == 2
    assert f"{thesis} is not a folder but a file, so {thesis / 'runs' / 'a'}" in (
        one_line()
    )
    assert files_in(tmp_path) == ["thesis.tex"]


def test_a_folder_that_cannot_be_made(tmp_path, one_line):
    folder = tmp_path / ("long" * 100)
    assert main([*SMALL, "--out", str(folder)]) == 2
    line = one_line()
    assert f"cannot make the run folder {folder}: " in line and "Errno" not in line


def test_a_missing_extra_of_the_command_line_is_named(one_line, monkeypatch):
    monkeypatch.setattr(command, "find_spec", {"matplotlib": "found"}.get)
    assert main(SMALL) == 2
    line = one_line()
    assert "needs tyro and rich;" in line and 'pip install "nnx_ppo_fn[cli]"' in line


def test_a_missing_extra_of_an_environment_is_named(one_line, monkeypatch):
    monkeypatch.delitem(sys.modules, "nnx_ppo_fn.envs._gymnax", raising=False)
    monkeypatch.delattr("nnx_ppo_fn.envs._gymnax", raising=False)
    monkeypatch.setitem(sys.modules, "gymnax", None)
    assert main(["train", "gymnax:CartPole-v1"]) == 2
    assert 'pip install "nnx_ppo_fn[gymnax]"' in one_line()


@pytest.mark.parametrize(
    "error",
    [
        CompositionError("expected x [B, 4],\n  got [256, 3]"),
        LawViolation("carry", "it grows", cause="a list that is appended to"),
    ],
)
def test_what_training_refuses_is_one_line(error, one_line, tmp_path, monkeypatch):
    def refuse(*_, **__):
        raise error

    monkeypatch.setattr(one_seed, "train_ppo", refuse)
    folder = tmp_path / "run"
    assert main([*SMALL, "--out", str(folder)]) == 2
    assert " ".join(str(error).split()) in one_line()
    assert not folder.exists()


def test_an_error_at_the_start_leaves_no_folder(tmp_path, monkeypatch):
    def fail(*_, **__):
        raise RuntimeError("the device is lost")

    monkeypatch.setattr(one_seed, "train_ppo", fail)
    with pytest.raises(RuntimeError, match="the device is lost"):
        main([*SMALL, "--out", str(tmp_path / "run")])
    assert files_in(tmp_path) == []


def test_an_error_in_the_middle_is_not_hidden(tmp_path, monkeypatch):
    def fail(*_, log_fn, **__):
        log_fn({"losses/critic/mean": 1.0}, 512)
        raise ValueError("a fault of the program")

    monkeypatch.setattr(one_seed, "train_ppo", fail)
    with pytest.raises(ValueError, match="a fault of the program"):
        main([*SMALL, "--out", str(tmp_path / "run")])
    assert read_metrics(tmp_path / "run") == [{"step": 512, "losses/critic/mean": 1.0}]


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_a_stream_that_is_closed_is_no_error(stream, monkeypatch, capsys):
    monkeypatch.setattr(sys, stream, None)
    assert main(["envs", "built-in"]) == 0
    getattr(sys, stream).close()


def test_a_full_disk_under_the_output_is_one_line(monkeypatch, one_line, tmp_path):
    class Full(io.StringIO):
        def flush(self):
            raise OSError(28, "no space left")

        def fileno(self):
            return file.fileno()

    with (tmp_path / "output").open("w") as file:
        monkeypatch.setattr(sys, "stdout", Full())
        assert main(["envs", "built-in"]) == 1
    assert one_line() == "nnx-ppo-fn: error: no space left"
