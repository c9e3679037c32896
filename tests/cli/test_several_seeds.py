"""Several seeds at once."""

import dataclasses
import json
import os
import subprocess
import sys

import jax.random as jr
import pytest

from nnx_ppo_fn.algorithms.spreading import available_cores
from nnx_ppo_fn.algorithms.stopping import SeedsInterrupted, SeedsStopped
from nnx_ppo_fn.cli import main, recording, several_seeds
from nnx_ppo_fn.runs import load_run, read_metrics, RunFolder
from small_runs import FILES, files_in, moved, result_of, SMALL


EVALUATION = "eval/episode_reward/mean"
THREE = [*SMALL, "--policy", "mlp", "--seed", "4", "--seeds", "3"]


def trained(*, faults=("", "", ""), stop=None):
    """A `train_seeds` that has nothing to do; a seed with a fault says nothing."""

    def train(env, make_network, config, *, seeds, log_fn, **_):
        network = make_network(jr.key(0))
        results = []
        for seed, fault in zip(seeds, faults, strict=True):
            result = result_of(env, moved(network), config)
            history = [{"step": 512, EVALUATION: float(seed)}]
            results.append(
                dataclasses.replace(result, eval_history=history, fault=fault)
            )
        metrics = [
            {} if fault else {EVALUATION: float(seed), "eval/episode_reward/std": 0.0}
            for seed, fault in zip(seeds, faults, strict=True)
        ]
        log_fn(metrics, 0)
        log_fn(metrics, 512)
        if stop is not None:
            raise stop(results)
        return results

    return train


def log_failed(results):
    stop = SeedsStopped("log_fn failed; look into .results", results)
    stop.__cause__ = OSError("the disk is full")
    return stop


def test_every_seed_has_a_folder(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(several_seeds, "train_seeds", trained())
    folder = tmp_path / "runs"
    assert main([*THREE, "--out", str(folder)]) == 0
    assert files_in(folder) == ["learning_curve.png", "seed4", "seed5", "seed6"]
    for seed in (4, 5, 6):
        run = folder / f"seed{seed}"
        assert files_in(run) == FILES
        assert json.loads((run / "config.json").read_text())["train"]["seed"] == seed
        assert [line[EVALUATION] for line in read_metrics(run)] == [seed, seed]
        assert load_run(run)[2].seed == seed
    text = capsys.readouterr().out
    assert "1,024 steps in 8 environments, seeds 4 to 6" in text
    # The mean of 4, 5 and 6, and the root of two thirds.
    assert "evaluation    return 5.00 ± 0.816 over seeds" in text
    assert "512 of 1,024 steps | evaluation return 5.00" in text
    assert main(["plot", str(folder), "--out", str(tmp_path / "a.png")]) == 0
    assert "  3 seeds  5.00 ± 0.816 after 512 steps" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "code", "complaint"),
    [
        (
            {"faults": ("", "it broke", "")},
            1,
            "error: seed 5: it broke; {} keeps the runs",
        ),
        (
            {"faults": ("it broke", "", "it broke")},
            1,
            "error: seeds 4, 6: it broke; {} keeps the runs",
        ),
        (
            {"stop": SeedsInterrupted},
            130,
            "interrupted after 512 steps; {} keeps the runs",
        ),
        (
            {"stop": log_failed},
            1,
            "error: OSError: the disk is full; {} keeps the runs",
        ),
    ],
    ids=["fault", "faults", "interrupted", "log failed"],
)
def test_what_there_is_is_kept(options, code, complaint, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(several_seeds, "train_seeds", trained(**options))
    folder = tmp_path / "runs"
    assert main([*THREE, "--quiet", "--out", str(folder)]) == code
    printed = capsys.readouterr()
    assert printed.out == f"{folder}\n"
    assert printed.err == f"nnx-ppo-fn: {complaint.format(folder)}\n"
    assert files_in(folder / "seed6") == FILES
    load_run(folder / "seed5")


def test_folders_that_cannot_all_be_made_are_not_made(tmp_path, monkeypatch, one_line):
    def refuse(path, *arguments):
        if path.name == "seed5":
            raise OSError(28, "no space left")
        return RunFolder(path, *arguments)

    monkeypatch.setattr(recording, "RunFolder", refuse)
    assert main([*THREE, "--out", str(tmp_path / "runs")]) == 2
    assert "cannot make the run folder" in one_line()
    assert files_in(tmp_path) == []


def test_what_is_refused_leaves_no_folder(tmp_path, monkeypatch, one_line):
    def refuse(*_, **__):
        raise ValueError("not like this")

    monkeypatch.setattr(several_seeds, "train_seeds", refuse)
    assert main([*THREE, "--out", str(tmp_path / "runs")]) == 2
    assert "not like this" in one_line()
    assert files_in(tmp_path) == []


def test_seeds_are_trained(tmp_path, capsys):
    folder = tmp_path / "runs"
    assert main([*SMALL, "--policy", "mlp", "--seeds", "2", "--out", str(folder)]) == 0
    for seed in (17, 18):
        lines = read_metrics(folder / f"seed{seed}")
        assert [line["step"] for line in lines] == [0, 512, 1024]
        assert lines[-1]["replay/log_ratio_max"] <= 1e-4


def test_one_network_that_cannot_be_saved_costs_no_other(
    tmp_path, monkeypatch, one_line
):
    save = RunFolder.save_network

    def refuse(folder, network):
        if folder.path.name == "seed4":
            raise OSError(28, "no space left")
        save(folder, network)

    monkeypatch.setattr(RunFolder, "save_network", refuse)
    monkeypatch.setattr(several_seeds, "train_seeds", trained())
    assert main([*THREE, "--out", str(tmp_path / "runs")]) == 1
    line = one_line()
    assert line.endswith(f"network into {tmp_path / 'runs' / 'seed4'}: no space left")
    for seed in (5, 6):
        assert files_in(tmp_path / "runs" / f"seed{seed}") == FILES


@pytest.mark.parametrize(
    "before, flags, devices",
    [
        ("", "", min(2, available_cores())),
        ("jax.devices()", "", 1),
        ("", "--xla_force_host_platform_device_count=3", 3),
    ],
    ids=["fresh", "JAX was used", "settled by the user"],
)
def test_cores_become_devices(before, flags, devices):
    """Unless it is too late, or somebody has said how many there are."""
    program = (
        "import jax\n"
        "from nnx_ppo_fn.cli.several_seeds import _make_cores_devices\n"
        f"{before}\n"
        "_make_cores_devices(2)\n"
        "print(len(jax.devices()))"
    )
    environment = {**os.environ, "JAX_PLATFORMS": "cpu", "XLA_FLAGS": flags}
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        env=environment,
        check=True,
    )
    assert int(done.stdout) == devices
