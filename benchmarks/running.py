"""Goes through the grid."""

import contextlib
from collections.abc import Callable, Generator

import jax

from .agents import measure_agents
from .compilations import count_compilations
from .device import describe_device
from .ours import NAME, Ours
from .peers.borders import Entry, find_peers, learners_of, Peer
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
        with _opened(peers, cell) as opened:
            _measure_cell(cell, opened, peers, results)
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


@contextlib.contextmanager
def _opened(peers: dict[str, Entry], cell: Cell) -> Generator[dict[str, Peer]]:
    """The cell in every peer that has its network."""
    with contextlib.ExitStack() as stack:
        opened = {
            name: entry.open(cell)
            for name, entry in peers.items()
            if cell.network in entry.NETWORKS
        }
        for peer in opened.values():
            stack.callback(peer.close)
        yield opened


def _measures(cell: Cell, *, is_quick: bool) -> tuple[str, ...]:
    """The cell's measures, and the spread step where devices can take equal parts."""
    devices = jax.device_count()
    can_spread = devices > 1 and not cell.environments % (devices * MINIBATCHES)
    if is_quick or not can_spread or "step" not in cell.measures:
        return cell.measures
    return (*cell.measures, SPREAD)


def _measure_cell(
    cell: Cell, opened: dict[str, Peer], peers: dict[str, Entry], results: Results
) -> None:
    ours = Ours(cell, time_products=not results.settings.quick)
    for measure in _measures(cell, is_quick=results.settings.quick):
        programs = {NAME: ours.program(measure)}
        programs |= {
            name: peer.program(measure)
            for name, peer in opened.items()
            if measure in peers[name].MEASURES
        }
        timings = take_turns(
            {name: program.call for name, program in programs.items()},
            repeats=results.settings.repeats,
            seconds=results.settings.seconds,
        )
        rows = {
            name: row_of(
                name,
                cell,
                measure,
                program,
                timings[name],
                parameters=ours.parameters if name == NAME else opened[name].parameters,
            )
            for name, program in programs.items()
        }
        results.rows += rows.values()
        results.ratios += [
            ratio_of(cell, rows[NAME], rows[name], (timings[NAME], timings[name]))
            for name in programs
            if name != NAME
        ]
    if ours.storage is not None:
        place = (cell.network, cell.environments, cell.rollout_length)
        results.stored.append(Stored(*place, ours.storage))
