"""Where the parts of a picture of a graph stand.

Nodes stand in columns, and lines lead from one column to the next. A line that leads
further has a slot of its own in every column on its way, so that none runs behind a
node. At a node every line has a port of its own, and is level there for as long as the
longest label, so that no label meets another.
"""

import itertools as it
from collections.abc import Mapping, Sequence
from typing import final, NamedTuple

from ._levels import Item, Levels, levels, Neighbour, PORT, Side, Slot


MARGIN = 14.0
LINE_HEIGHT = 18.0
ARROW = 13.0
"""The room between a label and the node beside it."""
_LEAST_HEIGHT = 44.0
_GAP = 4.0
_APART = 12.0
_LEAST_BEND, _WIDEST_BEND, _STEEPNESS = 44.0, 160.0, 0.2
_LEFT, _RIGHT = -1, 1


@final
class Node(NamedTuple):
    """How wide a node is, and the texts on its left and on its right; 0 is no text."""

    width: float
    before: float = 0.0
    after: float = 0.0


@final
class Line(NamedTuple):
    """A line from a node to another or to itself, and how wide its label is."""

    src: str
    dst: str
    label: float = 0.0


@final
class Box(NamedTuple):
    """A node in its place, and how high the texts beside it stand."""

    left: float
    top: float
    width: float
    height: float
    before: float
    after: float


@final
class Way(NamedTuple):
    """A line in its place, as a path of SVG, and the middle of its label."""

    path: str
    x: float
    y: float


@final
class Layout(NamedTuple):
    """A picture of a width and a height with everything in its place."""

    boxes: dict[str, Box]
    ways: list[Way]
    width: float
    height: float


@final
class _Column(NamedTuple):
    """From left to right: labels until `left`, nodes until `right`, and labels."""

    start: float
    left: float
    right: float
    end: float


@final
class _Plan(NamedTuple):
    """What is known before anything has a place.

    - `column`: of every node and slot, from 0.
    - `tracks`: of every line, the nodes and slots that it passes.
    - `ports`, `passages`: what leads where, as `levels` takes them.
    """

    nodes: Mapping[str, Node]
    lines: Sequence[Line]
    column: dict[Item, int]
    tracks: list[list[Item]]
    ports: dict[Side, list[Neighbour]]
    passages: dict[Slot, list[Neighbour]]


def arranged(nodes: Mapping[str, Node], lines: Sequence[Line]) -> Layout:
    """Finds a place for everything.

    **Arguments:**

    - `nodes`: by name, in an order in which most lines lead forward.
    - `lines`: between any of them.
    """
    plan = _planned(nodes, lines)
    heights = {name: _height(name, plan) for name in nodes}
    loops = {name: len(_loops(name, lines)) for name in nodes}
    reach = {
        name: (height / 2 + LINE_HEIGHT * loops[name] + _APART, height / 2 + _APART)
        for name, height in heights.items()
    }
    members = [
        [item for item, column in plan.column.items() if column == index]
        for index in range(1 + max(plan.column.values()))
    ]
    texts = {Side(name, _LEFT) for name, node in nodes.items() if node.before}
    texts |= {Side(name, _RIGHT) for name, node in nodes.items() if node.after}
    found = levels(members, plan.ports, plan.passages, texts, reach)
    tops = [found.middle[name] - up for name, (up, _) in reach.items()]
    ends = [found.middle[name] + down for name, (_, down) in reach.items()]
    slots = [found.middle[slot] for slot in plan.passages]
    top, end = min(tops + slots), max(ends + slots)
    found = found.moved(MARGIN - top)
    columns, width = _columns_in_place(plan, found)
    boxes = {
        name: _box(name, plan, found, heights[name], columns[plan.column[name]])
        for name in nodes
    }
    ways = [
        _loop(number, plan, boxes[line.src])
        if line.src == line.dst
        else _way(number, plan, found, columns)
        for number, line in enumerate(lines)
    ]
    return Layout(boxes, ways, width, end - top + 2 * MARGIN)


def _planned(nodes: Mapping[str, Node], lines: Sequence[Line]) -> _Plan:
    column: dict[Item, int] = {**_columns(list(nodes), lines)}
    plan = _Plan(nodes, lines, column, [], {}, {})
    for name in nodes:
        plan.ports[Side(name, _LEFT)] = []
        plan.ports[Side(name, _RIGHT)] = []
    for number, line in enumerate(lines):
        first, last = column[line.src], column[line.dst]
        direction = _direction(first, last)
        between = range(first + direction, last, direction) if first != last else ()
        slots = [(number, at) for at in between]
        track: list[Item] = [line.src, *slots, line.dst]
        plan.tracks.append(track)
        for slot in slots:
            column[slot] = slot[1]
        if line.src == line.dst:
            continue
        for here, there in it.pairwise(track):
            back = _RIGHT if first == last else -direction
            for item, other, side in ((here, there, direction), (there, here, back)):
                if isinstance(item, str):
                    ends = plan.ports[Side(item, side)]
                else:
                    ends = plan.passages.setdefault(item, [])
                ends.append(Neighbour(number, other))
    return plan


def _columns(names: Sequence[str], lines: Sequence[Line]) -> dict[str, int]:
    """A column for each node, to the right of all before it that lead to it."""
    number = {name: index for index, name in enumerate(names)}
    column: dict[str, int] = {}
    for name in names:
        before = [
            column[line.src]
            for line in lines
            if line.dst == name and number[line.src] < number[name]
        ]
        column[name] = 1 + max(before, default=-1)
    return column


def _direction(first: int, last: int) -> int:
    return _LEFT if last < first else _RIGHT


def _loops(name: str, lines: Sequence[Line]) -> list[int]:
    """The lines of a node to itself, by number."""
    return [n for n, line in enumerate(lines) if line.src == name == line.dst]


def _height(name: str, plan: _Plan) -> float:
    """The height of a node, which has room for all ports of its fuller side."""
    node = plan.nodes[name]
    left = len(plan.ports[Side(name, _LEFT)]) + bool(node.before)
    right = len(plan.ports[Side(name, _RIGHT)]) + bool(node.after)
    return max(_LEAST_HEIGHT, PORT * (max(left, right) + 0.5))


def _columns_in_place(plan: _Plan, found: Levels) -> tuple[list[_Column], float]:
    """The columns from left to right, and where the last thing ends."""
    columns: list[_Column] = []
    start = MARGIN
    for index in range(1 + max(plan.column.values())):
        nodes = [one for name, one in plan.nodes.items() if plan.column[name] == index]
        widths = [node.width for node in nodes]
        before = [node.before for node in nodes]
        after = [node.after for node in nodes]
        for line in plan.lines:
            if plan.column[line.dst] != index:
                continue
            comes_from_left = plan.column[line.src] < index
            is_loop = line.src == line.dst
            place = before if comes_from_left else widths if is_loop else after
            place.append(line.label)
        left = start + max(before) + ARROW + _GAP
        right = left + max(widths)
        end = right + max(after) + ARROW + _GAP
        columns.append(_Column(start, left, right, end))
        start = end + _room(index, plan, found)
    return columns, start + MARGIN


def _room(index: int, plan: _Plan, found: Levels) -> float:
    """How much room the curves on the right of a column need."""
    return max(
        (
            _bend(found.of(number, here) - found.of(number, there))
            for number, track in enumerate(plan.tracks)
            for here, there in it.pairwise(track)
            if here != there and min(plan.column[here], plan.column[there]) == index
        ),
        default=0.0,
    )


def _bend(rise: float) -> float:
    """How wide a curve is that rises or falls: wider where it is steep."""
    return min(_LEAST_BEND + _STEEPNESS * abs(rise), _WIDEST_BEND)


def _box(name: str, plan: _Plan, found: Levels, height: float, column: _Column) -> Box:
    middle = found.middle[name]
    before, after = (
        middle - PORT * len(plan.ports[Side(name, side)]) / 2
        for side in (_LEFT, _RIGHT)
    )
    width = column.right - column.left
    return Box(column.left, middle - height / 2, width, height, before, after)


def _way(number: int, plan: _Plan, found: Levels, columns: Sequence[_Column]) -> Way:
    """Level through every column, and in a curve to the next one."""
    track = plan.tracks[number]
    first, last = plan.column[track[0]], plan.column[track[-1]]
    leads_right = last >= first
    x = columns[first].right if leads_right else columns[first].left
    path = f"M {x:.1f} {found.of(number, track[0]):.1f}"
    for here, there in it.pairwise(track):
        old, new = columns[plan.column[here]], columns[plan.column[there]]
        y, next_y = found.of(number, here), found.of(number, there)
        if old is new:
            leave = arrive = old.end
            control = leave + _bend(next_y - y)
        else:
            leave = old.end if leads_right else old.start
            arrive = new.start if leads_right else new.end
            control = (leave + arrive) / 2
        path += (
            f" H {leave:.1f} C {control:.1f} {y:.1f}, {control:.1f} {next_y:.1f}, "
            f"{arrive:.1f} {next_y:.1f}"
        )
    label = ARROW + plan.lines[number].label / 2
    y = found.of(number, track[-1])
    if first < last:
        return Way(f"{path} H {columns[last].left:.1f}", columns[last].left - label, y)
    return Way(f"{path} H {columns[last].right:.1f}", columns[last].right + label, y)


def _loop(number: int, plan: _Plan, box: Box) -> Way:
    """A loop on top of a node, around the loops that it has already."""
    line = plan.lines[number]
    rank = _loops(line.src, plan.lines).index(number)
    half = min(12 + 6 * rank + line.label / 3, box.width / 2 - 12)
    middle, rise = box.left + box.width / 2, LINE_HEIGHT * (rank + 1)
    # A cubic curve comes as close to its control points as three quarters.
    high = box.top - rise / 0.75
    path = (
        f"M {middle + half:.1f} {box.top:.1f} C {middle + half + 9:.1f} {high:.1f}, "
        f"{middle - half - 9:.1f} {high:.1f}, {middle - half:.1f} {box.top:.1f}"
    )
    return Way(path, middle, box.top - rise)
