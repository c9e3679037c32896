"""Trainings in processes that have a core each."""

import os
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import pytest

from benchmarks import cores


PRESET = ("hidden-cartpole", "mlp")

needs_affinity = pytest.mark.skipif(
    not hasattr(os, "sched_setaffinity"), reason="processes cannot be kept on a core"
)


@needs_affinity
def test_a_process_keeps_to_its_core_and_trains_its_own_agents():
    core = max(os.sched_getaffinity(0))
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process:
        process.submit(cores._begin, core, PRESET, range(1, 3), 4, 1).result()
        assert process.submit(os.sched_getaffinity, 0).result() == {core}
        assert process.submit(cores._take_further).result() > 0


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
            return self

        def result(self):
            asked.append(len(begun))
            return self.seconds

    begun, running, asked = [], [], []
    monkeypatch.setattr(cores, "ProcessPoolExecutor", Process)
    with cores.on_every_core(PRESET, 6, iterations=1) as call:
        assert begun == [(0, range(2)), (1, range(2, 4)), (2, range(4, 6))]
        assert asked == [3, 3, 3]
        assert call() == 10.0
    assert not running


@pytest.mark.parametrize("available, seeds", [({0}, 4), ({0, 1}, 3)])
def test_no_process_is_started_where_cores_cannot_take_equal_parts(
    monkeypatch, available, seeds
):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: available, raising=False)
    monkeypatch.setattr(os, "sched_setaffinity", None, raising=False)
    with cores.on_every_core(PRESET, seeds, iterations=1) as call:
        assert call is None
