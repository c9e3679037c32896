"""Trains many agents side by side, spread over devices, and one after another."""

import functools as ft
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import NamedTuple

import jax

from nnx_ppo_fn.algorithms.spreading import (
    available_cores,
    devices_for,
    for_each_row,
    spread,
)

from .cores import on_every_core
from .programs import compile_program
from .timing import feeding_back, Spread, take_turns, timed
from .trainings import Trainings


ENVIRONMENT = "hidden-cartpole"
POLICY = "lstm"
STEPS_TO_BALANCE = 115_000
"""Environment steps after which an agent balances as long as it may."""


class Agents(NamedTuple):
    """Agents that are trained with one seed each.

    - `environment`, `policy`: the preset's names.
    - `seeds`: how many.
    - `steps`: environment steps that an agent is trained for.
    - `devices`: how many of them there were for `spread`.
    - `one_by_one`, `side_by_side`, `spread`: agents per minute in a row, by `jax.vmap`
      on one device, and as `train_seeds` does it on all devices.
    - `ratio`, `spread_ratio`: seconds side by side, and spread, as a part of those in a
      row.
    - `cores_ratio`: the same for processes that have one core each, and as many of the
      agents as the others; `None` where there are none.
    """

    environment: str
    policy: str
    seeds: int
    steps: int
    devices: int
    one_by_one: Spread
    side_by_side: Spread
    spread: Spread
    ratio: Spread
    spread_ratio: Spread
    cores_ratio: Spread | None = None


def measure_agents(
    seeds: int, *, iterations: int, repeats: int, seconds: float
) -> Agents:
    """Times some iterations of all ways, in turns, in a process of its own.

    Every core of a CPU is a device there, which nothing else that is measured shall
    see: a program that does not know of it would use the first of them alone.

    **Arguments:**

    - `seeds`: agents; a multiple of the devices, or as many less as it takes.
    - `iterations`: of each; all iterations of a training take equally long.
    - `repeats`, `seconds`: as for `take_turns`.
    """
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process:
        measured = process.submit(
            _measure,
            (ENVIRONMENT, POLICY),
            seeds,
            iterations=iterations,
            repeats=repeats,
            seconds=seconds,
        )
        return measured.result()


def _measure(
    preset: tuple[str, str],
    seeds: int,
    *,
    iterations: int,
    repeats: int,
    seconds: float,
) -> Agents:
    jax.config.update("jax_num_cpu_devices", available_cores())
    mesh = devices_for(seeds)
    seeds -= seeds % mesh.size
    trainings = Trainings(preset, iterations)
    iterate = trainings.iterate
    together = trainings.begun(seeds)
    apart = spread(together, mesh)
    side_by_side = compile_program(
        jax.vmap(iterate), together, donated=0, trains=True
    ).run
    on_all = compile_program(
        ft.partial(for_each_row, iterate, mesh=mesh), apart, donated=0, trains=True
    ).run
    programs = {
        "one by one": timed(trainings.in_a_row(together, range(seeds))),
        "side by side": feeding_back(side_by_side, together),
        "spread": feeding_back(on_all, apart),
    }
    with on_every_core(preset, seeds, iterations=iterations) as processes:
        if processes:
            programs["a process on each core"] = processes
        timings = take_turns(programs, repeats=repeats, seconds=seconds)
    calls = {name: timing.calls for name, timing in timings.items()}
    per_iteration = trainings.config.ppo.steps_per_iteration
    whole = -(-STEPS_TO_BALANCE // per_iteration)

    def per_minute(name: str) -> Spread:
        return Spread.of(
            [60 * seeds * iterations / whole / call for call in calls[name]]
        )

    def of_a_row(name: str) -> Spread:
        pairs = zip(calls[name], calls["one by one"], strict=True)
        return Spread.of([call / in_row for call, in_row in pairs])

    environment, policy = preset
    return Agents(
        environment=environment,
        policy=policy,
        seeds=seeds,
        steps=whole * per_iteration,
        devices=mesh.size,
        one_by_one=per_minute("one by one"),
        side_by_side=per_minute("side by side"),
        spread=per_minute("spread"),
        ratio=of_a_row("side by side"),
        spread_ratio=of_a_row("spread"),
        cores_ratio=of_a_row("a process on each core") if processes else None,
    )
