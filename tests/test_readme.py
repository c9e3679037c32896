"""What the README says works."""

import jax.random as jr
import pytest

from nnx_ppo_fn.presets import build
from nnx_ppo_fn.runs import RunFolder
from pages import blocks, HOME, python_blocks, README


PYTHON = python_blocks(README)
SHELL = [text for language, text in blocks(README) if language == "sh"]


@pytest.fixture
def run_example(capsys):
    """A function that runs the only example with a word in it, and gives its lines."""

    def run(word):
        (code,) = [code for code in PYTHON if word in code]
        exec(compile(code, "README.md", "exec"), {"__name__": "readme"})
        return capsys.readouterr().out.splitlines()

    return run


def test_every_example_is_run():
    assert len(PYTHON) == 3


def test_a_module_of_ones_own_learns(run_example):
    lines = [line.split() for line in run_example("SynapticNoise")]
    assert int(lines[-1][0]) >= 120_000
    # A policy at chance balances for about 10 steps; the README promises 100.
    assert float(lines[0][1]) < 30
    assert float(lines[-1][1]) > 100


def test_an_environment_of_ones_own_is_learned(run_example):
    first, *_, last = [line.split() for line in run_example("Tightrope")]
    assert [int(first[0]), int(last[0])] == [0, 96_000]
    # 50 steps earn at most 50; the README promises 45.
    assert float(first[1]) < 15
    assert 45 < float(last[1]) < 50


def test_a_run_is_loaded(run_example, tmp_path, monkeypatch):
    setup = build("probe:memory", "mlp", key=jr.key(0))
    folder = RunFolder(tmp_path / "runs" / "gru", "probe:memory", "mlp", setup)
    folder.save_network(setup.network)
    folder.close()
    monkeypatch.chdir(tmp_path)
    (line,) = run_example("load_run")
    assert "eval/episode_reward/mean" in line


def test_ci_runs_the_test_command():
    (command,) = [line for line in SHELL if "pytest" in line]
    assert command.strip() in (HOME / ".ci" / "run").read_text().splitlines()
    assert len(command.strip().splitlines()) == 1
