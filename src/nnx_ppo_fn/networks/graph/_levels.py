"""How high things stand in the columns of a picture, so that few lines cross."""

import itertools as it
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import final, NamedTuple, TypeAlias

import numpy as np


Slot: TypeAlias = tuple[int, int]
"""Where a line passes a column: the number of the line, and that of the column."""
Item: TypeAlias = str | Slot
"""What stands in a column: a node, by its name, or a slot."""

PORT = 16.0
"""From one port of a node to the next."""
_SLOT = 14.0
_ORDERING, _SETTLING = 20, 40
_DIRECTIONS = 1, -1


@final
class Neighbour(NamedTuple):
    """What a line leads to from a place: its number, and the next place on its way."""

    line: int
    item: Item


@final
class Side(NamedTuple):
    """The left (-1) or right (1) side of a node."""

    node: str
    direction: int


@final
class Levels(NamedTuple):
    """The height of every item, downwards, and that of a line's port on its node."""

    middle: dict[Item, float]
    port: dict[tuple[int, str], float]

    def of(self, line: int, item: Item) -> float:
        """How high a line is where it passes a slot or meets a node."""
        offset = self.port[line, item] if isinstance(item, str) else 0.0
        return self.middle[item] + offset

    def moved(self, by: float) -> "Levels":
        """The same further down."""
        return Levels({item: y + by for item, y in self.middle.items()}, self.port)


def levels(
    columns: Iterable[Iterable[Item]],
    ports: Mapping[Side, Sequence[Neighbour]],
    passages: Mapping[Slot, Sequence[Neighbour]],
    texts: Collection[Side],
    reach: Mapping[str, tuple[float, float]],
) -> Levels:
    """Finds a height for everything.

    Everything is drawn to the height of what it is connected with, again and again:
    first it may change places with others of its column, then it may not.

    **Arguments:**

    - `columns`: what stands in each.
    - `ports`: where the lines that start or end at a side of a node lead.
    - `passages`: the same for slots, to both sides.
    - `texts`: the sides on which a text stands, above all ports.
    - `reach`: how much room each node takes, upwards and downwards.
    """
    order = [list(column) for column in columns]
    column_of = {item: index for index, column in enumerate(order) for item in column}
    pulls: dict[Item, list[Neighbour]] = {
        item: list(neighbours) for item, neighbours in passages.items()
    }
    for side, neighbours in ports.items():
        pulls.setdefault(side.node, []).extend(
            one for one in neighbours if column_of[one.item] != column_of[side.node]
        )
    net = _Net(column_of, pulls, ports, texts, reach)
    tried = [net.start(order)]
    for sweep in range(_ORDERING):
        for column in order:
            column.sort(key=tried[-1].middle.__getitem__)
        tried.append(net.swept(order, tried[-1], _DIRECTIONS[sweep % 2], reorder=True))
    found = min(tried, key=net.crossings)
    for column in order:
        column.sort(key=found.middle.__getitem__)
    for sweep in range(_SETTLING):
        found = net.swept(order, found, _DIRECTIONS[sweep % 2], reorder=False)
    return found


@final
class _Net(NamedTuple):
    """What is connected with what; `pulls` is what is in another column."""

    column_of: Mapping[Item, int]
    pulls: Mapping[Item, Sequence[Neighbour]]
    ports: Mapping[Side, Sequence[Neighbour]]
    texts: Collection[Side]
    reach: Mapping[str, tuple[float, float]]

    def start(self, order: Sequence[Sequence[Item]]) -> Levels:
        """Every column around the same height."""
        middle: dict[Item, float] = {}
        for column in order:
            heights = _apart([0.0] * len(column), column, self.reach)
            middle |= zip(column, heights, strict=True)
        return self.with_ports(middle)

    def swept(
        self,
        order: Sequence[Sequence[Item]],
        found: Levels,
        direction: int,
        *,
        reorder: bool,
    ) -> Levels:
        """Draws one column after the other to the height of what it is connected with.

        **Arguments:**

        - `order`: the columns, each in its order downwards.
        - `direction`: 1 from left to right, -1 from right to left.
        - `reorder`: whether a column's order may change; only the columns that came
          before then draw it.
        """
        middle = dict(found.middle)
        for column in order[::direction]:
            now = Levels(middle, found.port)
            centre = sum(middle[item] for item in column) / len(column)
            wanted: dict[Item, float] = {}
            for item in column:
                near = self.pulls.get(item, ())
                here = self.column_of[item]
                past = [
                    one
                    for one in near
                    if direction * (self.column_of[one.item] - here) < 0
                ]
                drawn = (past if reorder else near) or near
                wanted[item] = _straight(item, drawn, now) if drawn else centre
            items = sorted(column, key=wanted.__getitem__) if reorder else column
            heights = _apart([wanted[item] for item in items], items, self.reach)
            middle |= zip(items, heights, strict=True)
        return self.with_ports(middle)

    def with_ports(self, middle: dict[Item, float]) -> Levels:
        """Ports in the order of what their lines lead to, evenly around the middle."""
        port: dict[tuple[int, str], float] = {}
        for (node, direction), neighbours in self.ports.items():
            in_order = sorted(neighbours, key=lambda one: self._rank(one, node, middle))
            first = 1 if (node, direction) in self.texts else 0
            last = first + len(neighbours) - 1
            for index, one in enumerate(in_order, first):
                port[one.line, node] = PORT * (index - last / 2)
        return Levels(middle, port)

    def _rank(
        self, one: Neighbour, node: str, middle: Mapping[Item, float]
    ) -> tuple[float, int]:
        """What the ports of a node are sorted by."""
        there = middle[one.item]
        # Lines to a node of the same column lie one inside the other.
        is_beside = self.column_of[one.item] == self.column_of[node]
        is_inside = is_beside and there < middle[node]
        return there, -one.line if is_inside else one.line

    def crossings(self, found: Levels) -> int:
        """How often lines cross between columns."""
        gaps: dict[int, list[tuple[float, float]]] = {}
        for item, neighbours in self.pulls.items():
            for one in neighbours:
                if self.column_of[one.item] > self.column_of[item]:
                    ends = found.of(one.line, item), found.of(one.line, one.item)
                    gaps.setdefault(self.column_of[item], []).append(ends)
        total = 0
        for lines in gaps.values():
            here, there = np.asarray(lines).T
            turned = (here[:, None] - here) * (there[:, None] - there) < 0
            total += int(np.count_nonzero(turned)) // 2
        return total


def _straight(item: Item, neighbours: Sequence[Neighbour], found: Levels) -> float:
    """The height at which lines from an item are straight on average."""
    rises = [
        found.of(one.line, one.item) - found.of(one.line, item) for one in neighbours
    ]
    return found.middle[item] + sum(rises) / len(rises)


def _apart(
    wanted: Sequence[float],
    items: Sequence[Item],
    reach: Mapping[str, tuple[float, float]],
) -> list[float]:
    """The heights nearest to the wanted ones at which nothing meets its neighbour.

    Nearest by the squared distance: with all reaches taken away this is an isotonic
    regression, which pools what is in the wrong order.
    """
    room = [reach[i] if isinstance(i, str) else (_SLOT / 2, _SLOT / 2) for i in items]
    shifts = [0.0]
    for (_, down), (up, _) in it.pairwise(room):
        shifts.append(shifts[-1] + down + up)
    pools: list[tuple[float, int]] = []
    for height, shift in zip(wanted, shifts, strict=True):
        pools.append((height - shift, 1))
        while len(pools) > 1 and pools[-2][0] > pools[-1][0]:
            (first, m), (second, n) = pools[-2:]
            pools[-2:] = [((m * first + n * second) / (m + n), m + n)]
    means = [mean for mean, count in pools for _ in range(count)]
    return [mean + shift for mean, shift in zip(means, shifts, strict=True)]
