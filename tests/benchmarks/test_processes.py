"""Programs in processes of their own."""

import os

import jax
import pytest

from benchmarks.processes import Process, started
from benchmarks.programs import SPREAD
from benchmarks.settings import Cell
from nnx_ppo_fn.algorithms.spreading import available_cores


CELL = Cell("mlp", 4, 2, ("rollout",))


def test_every_library_has_a_process_of_its_own():
    with started(("nnx_ppo_fn", "nnx-ppo"), CELL, "rollout") as processes:
        ids = {
            process._pool.submit(os.getpid).result() for process in processes.values()
        }
        assert len(ids | {os.getpid()}) == 3
        ours, theirs = (process.open() for process in processes.values())
        assert ours.parameters == theirs.parameters and ours.steps == theirs.steps == 8
        assert ours.cost is not None and theirs.cost is None
        assert all(process.call() > 0 for process in processes.values())


def test_only_a_spread_step_sees_every_core_as_a_device():
    cell = CELL._replace(environments=4 * available_cores())
    for measure, devices in ((SPREAD, available_cores()), ("step", 1)):
        with started(("nnx_ppo_fn",), cell, measure) as processes:
            process = processes["nnx_ppo_fn"]
            assert process._pool.submit(jax.device_count).result() == devices
            opened = process.open()
            assert process.call() > 0
        # The rollout's buffers are read from a step on one device.
        assert (opened.storage is None) == (measure == SPREAD)


def test_a_program_that_fails_is_told_and_its_process_ends():
    with pytest.raises(AttributeError, match="_no_such_measure"):
        with started(("nnx_ppo_fn",), CELL, "no_such_measure") as processes:
            processes["nnx_ppo_fn"].open()
    with pytest.raises(RuntimeError, match="after shutdown"):
        processes["nnx_ppo_fn"].call()


def test_a_library_that_cannot_be_loaded_is_told():
    process = Process("no such library", CELL, "rollout")
    with pytest.raises(KeyError, match="no such library"):
        process.wait()
    process.close()
