"""The order in which populations run, and how many steps at a time."""

import functools as ft
import heapq
from collections.abc import Collection, Iterable, Mapping
from graphlib import CycleError, TopologicalSorter
from typing import final, NamedTuple


# Blocks at both ends of a scan are compiled one by one.
_MOST_BLOCKS_AHEAD = 2


@final
class Edge(NamedTuple):
    """A connection, as far as its order in time goes."""

    src: str
    dst: str
    delay: int


@final
class Component(NamedTuple):
    """Populations that wait for each other, or one that waits for no other.

    - `members`: in the order in which they run within a block of steps.
    - `block`: how many steps they advance at a time; 0 where there is no cycle, and all
      steps can be taken at once.
    - `ahead`: by how many steps each member's block is later than the earliest one. A
      member that hears of another after two steps can be two steps ahead of it.
    """

    members: tuple[str, ...]
    block: int
    ahead: tuple[int, ...]


def run_order(names: Collection[str], edges: Iterable[Edge]) -> tuple[str, ...]:
    """The names in an order in which every edge leads forward.

    **Raises:**

    `graphlib.CycleError` where there is none; its second argument is a cycle, its first
    member repeated at the end.
    """
    sorter: TopologicalSorter[str] = TopologicalSorter()
    for name in sorted(names):
        sorter.add(name)
    for edge in edges:
        sorter.add(edge.dst, edge.src)
    return tuple(sorter.static_order())


def components(names: Iterable[str], edges: Iterable[Edge]) -> list[Component]:
    """The strongly connected components, in an order in which every edge leads forward.

    Edges count whatever their delays: what a population gets from a later component has
    to wait for it, even if it is of the past.

    **Arguments:**

    - `names`: all populations.
    - `edges`: all connections; those without delay form no cycle.
    """
    return list(_components(tuple(sorted(names)), tuple(edges)))


def wait(edge: Edge, ahead: Mapping[str, int]) -> int:
    """How far back an edge reaches from the end of its source's last block.

    **Arguments:**

    - `edge`: between members of a cycle.
    - `ahead`: by how many steps each member is ahead.
    """
    return edge.delay + ahead[edge.src] - ahead[edge.dst]


@ft.cache
def _components(
    names: tuple[str, ...], edges: tuple[Edge, ...]
) -> tuple[Component, ...]:
    distances = {name: _distances(name, edges) for name in names}
    first_of: dict[str, str] = {}
    groups: dict[str, list[str]] = {}
    for name in names:
        together = [one for one in distances[name] if name in distances[one]]
        first_of[name] = min(together)
        groups.setdefault(first_of[name], []).append(name)
    between = [
        Edge(first_of[edge.src], first_of[edge.dst], 0)
        for edge in edges
        if first_of[edge.src] != first_of[edge.dst]
    ]
    return tuple(
        _component(groups[name], edges, distances)
        for name in run_order(groups, between)
    )


def _component(
    members: list[str], edges: Iterable[Edge], distances: Mapping[str, dict[str, int]]
) -> Component:
    """The longest block that is found, with members no more ahead than it needs.

    No block is longer than the total delay of a cycle. One that is as long exists where
    all cycles share a member: the others can be ahead of it by as many steps as it
    takes to reach them, and all delay is then on the way back to it.
    """
    inner = [edge for edge in edges if edge.src in members and edge.dst in members]
    if not inner:
        return Component(tuple(members), 0, (0,) * len(members))
    longest = min(edge.delay + distances[edge.dst][edge.src] for edge in inner)
    found = [_block(members, inner, dict.fromkeys(members, 0), longest)]
    for name in members:
        far = distances[name]
        found.append(_block(members, inner, far, longest))
        # Whole blocks that a member is ahead are of no use, if nobody waits for them.
        within = {one: far[one] % found[-1].block for one in members}
        if all(wait(edge, within) >= 0 for edge in inner):
            found.append(_block(members, inner, within, longest))
    return max(found, key=_worth)


def _worth(component: Component) -> tuple[int, int]:
    """Long blocks are worth more, unless their ends are many programs of their own."""
    most_ahead = max(component.ahead)
    is_compact = most_ahead <= _MOST_BLOCKS_AHEAD * component.block
    return (component.block if is_compact else 0, -most_ahead)


def _block(
    members: list[str], inner: list[Edge], ahead: Mapping[str, int], longest: int
) -> Component:
    """Members in an order in which they can advance by as many steps as possible.

    A block needs nothing of itself over an edge that reaches back as far as it is long.
    It does over others, and these must form no cycle.

    **Arguments:**

    - `ahead`: by how many steps members may be ahead; they will be by no more than the
      block needs.
    - `longest`: no block is longer.
    """
    waits = [wait(edge, ahead) for edge in inner]
    blocks = sorted({steps for steps in waits if 0 < steps <= longest})
    order, block = (), 0
    # What forms no cycle within a block forms none within a shorter one.
    while blocks:
        middle = len(blocks) // 2
        tried = _order(members, inner, waits, blocks[middle])
        if tried is None:
            blocks = blocks[:middle]
        else:
            order, block = tried, blocks[middle]
            blocks = blocks[middle + 1 :]
    least, before = dict.fromkeys(members, 0), {}
    while least != before:
        before = dict(least)
        for edge, steps in zip(inner, waits, strict=True):
            gap = block if steps >= block else 0
            needed = least[edge.dst] + gap - edge.delay
            least[edge.src] = max(least[edge.src], needed)
    return Component(order, block, tuple(least[name] for name in order))


def _order(
    members: list[str], inner: list[Edge], waits: list[int], block: int
) -> tuple[str, ...] | None:
    """The order of members within blocks of so many steps; `None` if there is none."""
    pairs = zip(inner, waits, strict=True)
    try:
        return run_order(members, [edge for edge, steps in pairs if steps < block])
    except CycleError:
        return None


def _distances(name: str, edges: Iterable[Edge]) -> dict[str, int]:
    """How many steps activity takes to each population that it reaches; 0 to itself."""
    leaving: dict[str, list[Edge]] = {}
    for edge in edges:
        leaving.setdefault(edge.src, []).append(edge)
    found: dict[str, int] = {}
    waiting = [(0, name)]
    while waiting:
        steps, here = heapq.heappop(waiting)
        if here not in found:
            found[here] = steps
            for edge in leaving.get(here, ()):
                heapq.heappush(waiting, (steps + edge.delay, edge.dst))
    return found
