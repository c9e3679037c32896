"""Trains agents in processes that have one core each, and know nothing of the others.

Whatever spreads trainings that are independent over the cores of a CPU can hardly be
faster than that, unless it gains by doing the same for several of them at once.
"""

import contextlib
import os
from collections.abc import Generator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import jax

from .timing import Timed, timed
from .trainings import Trainings


@contextlib.contextmanager
def on_every_core(
    preset: tuple[str, str], seeds: int, *, iterations: int
) -> Generator[Timed | None]:
    """Starts a process for every core, with an equal part of the agents.

    **Arguments:**

    - `preset`, `iterations`: as for `Trainings`.
    - `seeds`: agents; a multiple of the cores, where there are no fewer than cores.

    **Returns:**

    A call that takes all agents further and returns the longest of the processes'
    seconds. `None` where there is no more than one core or agent, where cores cannot
    take equal parts, where processes cannot be kept on a core, and on other devices.
    """
    is_possible = hasattr(os, "sched_setaffinity") and jax.default_backend() == "cpu"
    cores = sorted(os.sched_getaffinity(0))[:seeds] if is_possible else []
    if len(cores) < 2 or seeds % len(cores):
        yield None
        return
    part = seeds // len(cores)
    with contextlib.ExitStack() as stack:
        processes = [
            stack.enter_context(ProcessPoolExecutor(1, mp_context=get_context("spawn")))
            for _ in cores
        ]
        beginnings = [
            process.submit(
                _begin, core, preset, range(i * part, (i + 1) * part), seeds, iterations
            )
            for i, (process, core) in enumerate(zip(processes, cores, strict=True))
        ]
        for beginning in beginnings:
            beginning.result()

        def call() -> float:
            running = [process.submit(_take_further) for process in processes]
            return max(one.result() for one in running)

        yield call


_agents: list[Timed] = []
"""Those of this process, where it has a core of its own."""


def _begin(
    core: int, preset: tuple[str, str], which: range, seeds: int, iterations: int
) -> None:
    # Before the threads of JAX start, which are as many as there are cores then.
    os.sched_setaffinity(0, {core})
    trainings = Trainings(preset, iterations)
    _agents.append(timed(trainings.in_a_row(trainings.begun(seeds), which)))


def _take_further() -> float:
    (agents,) = _agents
    return agents()
