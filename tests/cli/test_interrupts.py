"""Ctrl-C, as a terminal sends it."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import nnx_ppo_fn
from nnx_ppo_fn.cli import main, preparation
from nnx_ppo_fn.cli.display import AbstractDisplay
from nnx_ppo_fn.cli.interrupts import Interrupts, Stage
from nnx_ppo_fn.runs import load_run, read_metrics
from small_runs import FILES, files_in, SMALL


pytestmark = pytest.mark.skipif(os.name != "posix", reason="signals are POSIX's")

TESTS = Path(__file__).parent.parent
PACKAGES = Path(nnx_ppo_fn.__file__).parent.parent
# Whoever runs the tests may have made SIGINT ignored, which a process inherits.
PROGRAM = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
from nnx_ppo_fn.cli import one_seed
import nnx_ppo_fn_command, small_runs
one_seed.train_ppo = {train_ppo}
sys.exit(nnx_ppo_fn_command.main())
"""


def start(arguments, train_ppo="one_seed.train_ppo"):
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(map(str, (PACKAGES, TESTS))),
        "JAX_DISABLE_MOST_OPTIMIZATIONS": "1",
    }
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM.format(train_ppo=train_ppo), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )


def wait_for(process, beginning):
    """Reads the program's lines up to one that begins so."""
    for line in process.stdout:
        if line.startswith(beginning):
            return
    raise AssertionError(f"no {beginning!r}; {process.communicate()}")


def end(process):
    """The exit code, the rest of the output, and what the program complained about."""
    stdout, stderr = process.communicate(timeout=100)
    return process.returncode, stdout, stderr


def test_while_compiling_nothing_is_kept(tmp_path):
    arguments = [*SMALL, "--out", str(tmp_path / "run")]
    process = start(arguments, "small_runs.compiled_aloud")
    wait_for(process, "traced")
    process.send_signal(signal.SIGINT)
    code, _, complaint = end(process)
    assert code == 130
    assert complaint == (
        "nnx-ppo-fn: interrupted before anything was trained; nothing was kept\n"
    )
    assert files_in(tmp_path) == []


def test_training_stops_and_is_kept(tmp_path):
    folder = tmp_path / "run"
    endless = [*SMALL[:-1], str(10**9), "--policy", "mlp", "--out", str(folder)]
    process = start(endless)
    wait_for(process, "compiling")
    while process.poll() is None and not has_trained(folder):
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    code, text, complaint = end(process)
    assert code == 130
    assert "stopping after this chunk; Ctrl-C again quits at once" in text
    (steps,) = re.findall(r"interrupted after ([\d,]+) steps; (?:.*) keeps", complaint)
    assert complaint.count("\n") == 1
    # All of the last chunk is in the metrics: its 16 iterations of 8 times 64 steps.
    assert read_metrics(folder)[-1]["step"] == int(steps.replace(",", ""))
    assert read_metrics(folder)[-1]["step"] % (16 * 512) == 0
    assert files_in(folder) == FILES
    load_run(folder)


def has_trained(folder):
    metrics = folder / "metrics.jsonl"
    return metrics.exists() and len(metrics.read_text().splitlines()) > 1


def test_what_is_trained_is_saved_first(tmp_path):
    folder = tmp_path / "run"
    process = start([*SMALL, "--out", str(folder)], "small_runs.trained_and_slow")
    wait_for(process, "over")
    process.send_signal(signal.SIGTERM)
    code, text, complaint = end(process)
    assert code == 130
    assert complaint == (
        f"nnx-ppo-fn: interrupted while saving; {folder} keeps the run\n"
    )
    assert text.splitlines()[-1] == f"run folder    {folder}"
    assert files_in(folder) == FILES
    load_run(folder)


def test_a_second_press_quits_at_once(tmp_path):
    folder = tmp_path / "run"
    process = start([*SMALL, "--out", str(folder)], "small_runs.endless")
    wait_for(process, "busy")
    process.send_signal(signal.SIGINT)
    wait_for(process, "stopping after this chunk")
    process.send_signal(signal.SIGINT)
    code, text, complaint = end(process)
    assert (code, text) == (130, "")
    assert complaint == (
        f"nnx-ppo-fn: interrupted; {folder} keeps the metrics, but no network\n"
    )
    assert files_in(folder) == ["config.json", "metrics.jsonl"]
    assert read_metrics(folder) == [{"step": 512, "losses/critic/mean": 1.0}]


def test_before_there_is_a_folder(tmp_path, one_line, monkeypatch):
    def interrupt(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(preparation, "build", interrupt)
    assert main([*SMALL, "--out", str(tmp_path / "run")]) == 130
    one_line("interrupted")
    assert files_in(tmp_path) == []


@pytest.fixture
def handler():
    """A function that says who handles the signal until the test ends."""
    before = signal.getsignal(signal.SIGINT)
    yield lambda handler: signal.signal(signal.SIGINT, handler)
    signal.signal(signal.SIGINT, before)


class Notes(AbstractDisplay):
    """A display that remembers what was said."""

    problem = ""

    def __init__(self):
        self.said = []

    def start(self):
        pass

    def say(self, text):
        self.said.append(text)

    def update(self, metrics, step):
        pass

    def stop(self):
        pass

    def conclude(self, path):
        pass


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize(
    ("stage", "answer"),
    [(Stage.TRAINING, "stopping after this chunk"), (Stage.SAVING, "saving")],
)
def test_a_press_is_noticed_without_an_exception(stage, answer, number, handler):
    handler(signal.default_int_handler)
    notes = Notes()
    with Interrupts(notes) as interrupts:
        interrupts.stage = stage
        assert not interrupts.requested
        os.kill(os.getpid(), number)
    assert interrupts.requested
    (said,) = notes.said
    assert said.startswith(answer)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def test_a_request_ends_the_training_and_not_its_beginning():
    interrupts = Interrupts(Notes())
    interrupts.requested = True
    interrupts.go_on(0, whole_budget=1024)
    assert interrupts.stage is Stage.NOTHING_TRAINED
    with pytest.raises(KeyboardInterrupt):
        interrupts.go_on(512, whole_budget=1024)
    assert interrupts.stage is Stage.TRAINING
    interrupts.go_on(1024, whole_budget=1024)
    assert interrupts.stage is Stage.SAVING


def test_whoever_ignores_the_signal_goes_on_ignoring_it(handler):
    handler(signal.SIG_IGN)
    with Interrupts(Notes()) as interrupts:
        os.kill(os.getpid(), signal.SIGINT)
    assert not interrupts.requested
