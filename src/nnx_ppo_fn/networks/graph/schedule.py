"""The order in which populations run, and how many steps at a time."""

from collections.abc import Collection, Iterable
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
    - `block`: how many steps they can advance at a time; 0 where there is no cycle, and
      all steps can be taken at once.
    """

    members: tuple[str, ...]
    block: int


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
    inner = [edge for edge in edges if edge.src in members and edge.dst in members]
    if not inner:
        return Component(tuple(members), 0)
    # A block of as many steps as a delay is long needs nothing of itself through that
    # delay; through shorter ones it does, and these must form no cycle.
    for block in sorted({edge.delay for edge in inner} - {0}, reverse=True):
        within = [edge for edge in inner if edge.delay < block]
        try:
            return Component(run_order(members, within), block)
        except CycleError:
            continue
    raise AssertionError("a cycle without delay; the builder refuses it")


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
