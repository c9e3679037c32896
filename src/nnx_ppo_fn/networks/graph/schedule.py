"""The order in which populations run, and how many steps at a time."""

import heapq
from collections.abc import Collection, Iterable, Mapping
from graphlib import CycleError, TopologicalSorter
from typing import final, NamedTuple


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


def components(names: Collection[str], edges: Collection[Edge]) -> list[Component]:
    """The strongly connected components, in an order in which every edge leads forward.

    Edges count whatever their delays: what a population gets from a later component has
    to wait for it, even if it is of the past.

    **Arguments:**

    - `names`: all populations.
    - `edges`: all connections; those without delay form no cycle.
    """
    reached = {name: _reached(name, edges) for name in names}
    first_of: dict[str, str] = {}
    groups: dict[str, list[str]] = {}
    for name in sorted(names):
        together = {other for other in reached[name] if name in reached[other]}
        first_of[name] = min(together | {name})
        groups.setdefault(first_of[name], []).append(name)
    between = [
        Edge(first_of[edge.src], first_of[edge.dst], 0)
        for edge in edges
        if first_of[edge.src] != first_of[edge.dst]
    ]
    return [_component(groups[name], edges) for name in run_order(groups, between)]


def _component(members: list[str], edges: Collection[Edge]) -> Component:
    """The longest block that is found, and members no more ahead than it needs.

    No block is longer than the total delay of a cycle. One that is as long exists where
    all cycles share a member: the others can be ahead of it by as many steps as it
    takes to reach them, and all delay is then on the way back to it.
    """
    inner = [edge for edge in edges if edge.src in members and edge.dst in members]
    if not inner:
        return Component(tuple(members), 0, (0,) * len(members))
    side_by_side = dict.fromkeys(members, 0)
    candidates = [side_by_side, *(_distances(name, inner) for name in members)]
    found = [_block(members, inner, ahead) for ahead in candidates]
    # Of equally long ones the first, which has nobody ahead.
    number = max(range(len(found)), key=lambda number: found[number][1])
    order, block = found[number]
    waits = [wait(edge, candidates[number]) >= block for edge in inner]
    ahead = dict.fromkeys(members, 0)
    changed = True
    while changed:
        changed = False
        for edge, is_past in zip(inner, waits, strict=True):
            least = ahead[edge.dst] - edge.delay + (block if is_past else 0)
            if least > ahead[edge.src]:
                ahead[edge.src] = least
                changed = True
    return Component(order, block, tuple(ahead[name] for name in order))


def wait(edge: Edge, ahead: Mapping[str, int]) -> int:
    """How far back an edge reaches from the end of its source's last block.

    **Arguments:**

    - `edge`: between members of a cycle.
    - `ahead`: by how many steps each member is ahead.
    """
    return edge.delay + ahead[edge.src] - ahead[edge.dst]


def _block(
    members: list[str], inner: list[Edge], ahead: Mapping[str, int]
) -> tuple[tuple[str, ...], int]:
    """The order of members, and how many steps they advance at a time.

    A block needs nothing of itself over an edge that reaches back as far as it is long.
    It does over others, and these must form no cycle.
    """
    waits = [wait(edge, ahead) for edge in inner]
    for block in sorted(set(waits) - {0}, reverse=True):
        within = [edge for edge, back in zip(inner, waits, strict=True) if back < block]
        try:
            return run_order(members, within), block
        except CycleError:
            continue
    raise AssertionError("a cycle without delay; the builder refuses it")


def _distances(name: str, edges: list[Edge]) -> dict[str, int]:
    """How many steps a member's activity takes to reach each other member."""
    found: dict[str, int] = {}
    waiting = [(0, name)]
    while waiting:
        steps, here = heapq.heappop(waiting)
        if here not in found:
            found[here] = steps
            for edge in edges:
                if edge.src == here:
                    heapq.heappush(waiting, (steps + edge.delay, edge.dst))
    return found


def _reached(name: str, edges: Collection[Edge]) -> set[str]:
    """The names to which a path of at least one edge leads."""
    found: set[str] = set()
    waiting = [name]
    while waiting:
        here = waiting.pop()
        nexts = {edge.dst for edge in edges if edge.src == here} - found
        found |= nexts
        waiting.extend(nexts)
    return found
