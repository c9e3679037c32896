"""Trainings in processes that have a core each."""

import os
import sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import pytest

from benchmarks import cores


PRESET = ("hidden-cartpole", "mlp")

needs_affinity = pytest.mark.skipif(
    sys.platform != "linux", reason="processes cannot be kept on a core"
)


@needs_affinity
def test_the_threads_of_jax_keep_to_the_core_of_their_process():
    core = max(os.sched_getaffinity(0))
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process:
        process.submit(cores._begin, core, PRESET, range(1, 3), 4, 1).result()
        assert process.submit(cores._take_further).result() > 0
        (number,) = process._processes
        threads = Path(f"/proc/{number}/task").iterdir()
        of_jax = [one for one in threads if "XLA" in (one / "comm").read_text()]
        assert of_jax
        assert all(os.sched_getaffinity(int(one.name)) == {core} for one in of_jax)


@needs_affinity
def test_all_cores_train_at_the_same_time(monkeypatch):
    """The call takes as long as the slowest of them."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2})

    class Process:
        def __init__(self, *_, **__):
            self.seconds = 0.0

        def __enter__(self):
            return self

        def __exit__(self, *_):
            running.remove(self)

        def submit(self, function, *arguments):
            if function is cores._begin:
                core, _, which, *_ = arguments
                begun.append((core, which))
                running.append(self)
                self.seconds = 10.0 - core
            else:
                taken.append(self)
            return self

        def result(self):
            asked.append((len(begun), len(taken)))
            return self.seconds

    begun, running, taken, asked = [], [], [], []
    monkeypatch.setattr(cores, "ProcessPoolExecutor", Process)
    with cores.on_every_core(PRESET, 6, iterations=1) as call:
        assert begun == [(0, range(2)), (1, range(2, 4)), (2, range(4, 6))]
        assert call() == 10.0
        # All have begun, and all run, before any is waited for.
        assert asked == 3 * [(3, 0)] + 3 * [(3, 3)]
    assert not running


@pytest.mark.parametrize(
    "available, seeds", [({0}, 4), ({0, 1}, 3), ({0, 1}, 1), ({0, 1}, 0)]
)
def test_no_process_is_started_where_cores_cannot_take_equal_parts(
    monkeypatch, available, seeds
):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: available, raising=False)
    monkeypatch.setattr(os, "sched_setaffinity", None, raising=False)
    with cores.on_every_core(PRESET, seeds, iterations=1) as call:
        assert call is None


@needs_affinity
def test_no_process_is_started_on_other_devices(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    monkeypatch.setattr(cores.jax, "default_backend", lambda: "gpu")
    with cores.on_every_core(PRESET, 2, iterations=1) as call:
        assert call is None
