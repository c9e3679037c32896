"""Goes through the grid."""

from collections.abc import Callable

import jax

from .agents import measure_agents
from .compilations import count_compilations
from .device import describe_device
from .ours import NAME
from .peers.borders import Entry, find_peers, learners_of
from .processes import started
from .programs import SPREAD
from .records import ratio_of, Results, row_of, Stored
from .restarts import measure_restarts
from .returns import measure_returns
from .settings import Cell, MINIBATCHES, Settings
from .timing import take_turns


def run(settings: Settings, tell: Callable[[str], None]) -> Results:
    """Measures everything that the settings ask for.

    **Arguments:**

    - `settings`: what.
    - `tell`: is given a line whenever something begins.
    """
    tell("the device")
    results = Results(settings, describe_device())
    peers: dict[str, Entry] = {}
    if settings.peers:
        peers, results.missing = find_peers()
    cells = settings.cells()
    for number, cell in enumerate(cells, 1):
        tell(
            f"{cell.network}, {cell.environments} environments, "
            f"{cell.rollout_length} steps ({number} of {len(cells)})"
        )
        for measure in _measures(cell, is_quick=settings.quick):
            _measure(cell, measure, peers, results)
    if settings.speed and settings.iterations:
        tell(f"compilations in {settings.iterations} iterations")
        results.compilations = count_compilations(settings.iterations)
    if settings.speed and settings.seeds:
        tell(f"{settings.seeds} agents, side by side and one by one")
        results.agents = measure_agents(
            settings.seeds,
            iterations=settings.agent_iterations,
            repeats=settings.repeats,
            seconds=settings.seconds,
        )
    if settings.restarts:
        results.restarts = measure_restarts(
            repeats=settings.repeats, seconds=settings.seconds, tell=tell
        )
    if settings.returns:
        results.returns = measure_returns(settings, learners_of(peers), tell)
    tell("the device once more")
    results.device = results.device.at_best(describe_device())
    return results


def _measures(cell: Cell, *, is_quick: bool) -> tuple[str, ...]:
    """The cell's measures, and the spread step where devices can take equal parts."""
    devices = jax.device_count()
    can_spread = devices > 1 and not cell.environments % (devices * MINIBATCHES)
    if is_quick or not can_spread or "step" not in cell.measures:
        return cell.measures
    return (*cell.measures, SPREAD)


def _measure(
    cell: Cell, measure: str, peers: dict[str, Entry], results: Results
) -> None:
    """One measure of a cell, in this library and in all peers that have it."""
    settings = results.settings
    having = (
        name
        for name, entry in peers.items()
        if cell.network in entry.NETWORKS and measure in entry.MEASURES
    )
    with started((NAME, *having), cell, measure) as processes:
        programs = {name: process.open() for name, process in processes.items()}
        timings = take_turns(
            {name: process.call for name, process in processes.items()},
            repeats=settings.repeats,
            seconds=settings.seconds,
        )
        if not settings.quick:
            seconds = processes[NAME].products_seconds()
            programs[NAME] = programs[NAME].with_products(seconds)
    rows = {
        name: row_of(name, cell, measure, program, timings[name])
        for name, program in programs.items()
    }
    results.rows += rows.values()
    results.ratios += [
        ratio_of(cell, rows[NAME], rows[name], (timings[NAME], timings[name]))
        for name in programs
        if name != NAME
    ]
    storage = programs[NAME].storage
    if measure == "step" and storage is not None:
        place = (cell.network, cell.environments, cell.rollout_length)
        results.stored.append(Stored(*place, storage))
