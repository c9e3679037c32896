"""A picture of a graph: its populations, its connections, their delays and signs."""

from typing import final, NamedTuple
from xml.etree import ElementTree

import numpy as np

from ..constrained import ConstrainedDense
from ..containers import Sequential
from ..feedforward import Dense
from ..types import AnyModule
from .connection import Connection
from .graph import PopulationGraph
from .population import Population


_WIDTH, _HEIGHT = 104.0, 44.0
_COLUMN, _ROW = 196.0, 96.0
_MARGIN = 96.0
_INK, _PALE = "#22272e", "#eef1f4"
_COLOURS = {
    "excites": "#1f5fa8",
    "inhibits": "#b5483a",
    "excites or inhibits": "#8e5ea2",
    "free": "#5f6b7a",
}


@final
class SVG(str):
    """The text of a picture, which notebooks show as the picture."""

    def _repr_svg_(self) -> str:
        return str(self)


class _Point(NamedTuple):
    x: float
    y: float


def draw_graph(graph: PopulationGraph) -> SVG:
    """Draws a graph from left to right, in the order in which its populations run.

    Connections that lead back run below the populations, and those of a population
    with itself above it. The number on a connection is its delay in steps; none stands
    for the same step. Dale's law shows in the colour and in the end: an arrow for
    connections that excite, a bar for those that inhibit. Transforms that are more than
    a dense layer are named.

    **Arguments:**

    - `graph`: from `PopulationGraphBuilder.finalize`.

    **Returns:**

    An SVG document, a `str`.

    **Example:**

    ```python
    pathlib.Path("graph.svg").write_text(draw_graph(graph))
    ```
    """
    places = _places(graph)
    columns, _ = zip(*places.values(), strict=True)
    width = 2 * _MARGIN + _COLUMN * max(columns) + _WIDTH
    middle = max(abs(row) for _, row in places.values()) * _ROW
    height = 2 * (_MARGIN + middle) + _HEIGHT
    corners = {
        name: _Point(_MARGIN + column * _COLUMN, _MARGIN + middle + row * _ROW)
        for name, (column, row) in places.items()
    }
    svg = ElementTree.Element(
        "svg",
        {
            "xmlns": "http://www.w3.org/2000/svg",
            "viewBox": f"0 0 {width:g} {height:g}",
            "width": f"{width:g}",
            "height": f"{height:g}",
            "font-family": "sans-serif",
            "font-size": "12",
        },
    )
    ElementTree.SubElement(
        svg, "rect", {"width": "100%", "height": "100%", "fill": "white"}
    )
    _add_ends(svg)
    seen: dict[tuple[str, str], int] = {}
    for name, connection in graph.connections.items():
        pair = connection.src, connection.dst
        seen[pair] = seen.get(pair, -1) + 1
        kind = _kind(connection.transform)
        points = _curve(
            corners[connection.src], corners[connection.dst], seen[pair], height / 2
        )
        _add_connection(svg, name, connection, kind, points)
    for name, population in graph.populations.items():
        _add_population(svg, population, corners[name])
    return SVG(ElementTree.tostring(svg, encoding="unicode"))


def _places(graph: PopulationGraph) -> dict[str, tuple[int, float]]:
    """A column and a row, 0 being the middle, for every population."""
    depth = _depths(graph)
    order = [
        name
        for one in graph.components
        for name in sorted(one.members, key=lambda name: (depth[name], name))
    ]
    number = {name: index for index, name in enumerate(order)}
    forward = [
        (one.src, one.dst)
        for one in graph.connections.values()
        if number[one.src] < number[one.dst]
    ]
    column: dict[str, int] = {}
    for name in order:
        before = [column[src] for src, dst in forward if dst == name]
        column[name] = 1 + max(before, default=-1)
    columns: dict[int, list[str]] = {}
    for name in order:
        columns.setdefault(column[name], []).append(name)
    row = {
        name: index - (len(names) - 1) / 2
        for names in columns.values()
        for index, name in enumerate(names)
    }
    # A few times, every population moves to the height of those it is connected with.
    neighbours = {
        name: [src for src, dst in forward if dst == name]
        + [dst for src, dst in forward if src == name]
        for name in order
    }
    for _ in range(6):
        for names in columns.values():
            wanted = {
                name: float(np.mean([row[other] for other in neighbours[name]]))
                if neighbours[name]
                else row[name]
                for name in names
            }
            names.sort(key=lambda name, wanted=wanted: (wanted[name], number[name]))
            row |= {
                name: index - (len(names) - 1) / 2 for index, name in enumerate(names)
            }
    return {name: (column[name], row[name]) for name in order}


def _depths(graph: PopulationGraph) -> dict[str, int]:
    """By how many connections each population is away from an input."""
    depth = {
        name: 0 if one.input_from is not None else len(graph.populations)
        for name, one in graph.populations.items()
    }
    for _ in graph.populations:
        for one in graph.connections.values():
            depth[one.dst] = min(depth[one.dst], depth[one.src] + 1)
    return depth


def _add_ends(svg: ElementTree.Element) -> None:
    """The ends of connections, in the colour of each."""
    for kind, colour in _COLOURS.items():
        marker = ElementTree.SubElement(
            svg,
            "marker",
            {
                "id": kind.replace(" ", "-"),
                "viewBox": "0 0 10 10",
                "refX": "9",
                "refY": "5",
                "markerWidth": "9",
                "markerHeight": "9",
                "markerUnits": "userSpaceOnUse",
                "orient": "auto",
            },
        )
        shape = (
            "M 7 0 H 10 V 10 H 7 z" if kind == "inhibits" else "M 0 0 L 10 5 L 0 10 z"
        )
        ElementTree.SubElement(marker, "path", {"d": shape, "fill": colour})


def _add_connection(
    svg: ElementTree.Element,
    name: str,
    connection: Connection,
    kind: str,
    points: tuple[_Point, ...],
) -> None:
    """A curve with its label."""
    start, first, second, end = (f"{point.x:g} {point.y:g}" for point in points)
    group = ElementTree.SubElement(svg, "g")
    delay = f"delay {connection.delay}"
    ElementTree.SubElement(group, "title").text = f"{name}: {kind}, {delay}"
    ElementTree.SubElement(
        group,
        "path",
        {
            "d": f"M {start} C {first}, {second}, {end}",
            "fill": "none",
            "stroke": _COLOURS[kind],
            "stroke-width": "1.6",
            "marker-end": f"url(#{kind.replace(' ', '-')})",
        },
    )
    parts = [_named(connection.transform)]
    if connection.delay:
        parts.append(str(connection.delay))
    label = " ".join(part for part in parts if part)
    if label:
        # The middle of a cubic curve.
        x, y = ((a + 3 * b + 3 * c + d) / 8 for a, b, c, d in zip(*points, strict=True))
        _add_text(group, label, _Point(x, y + 4), _COLOURS[kind], halo=True)


def _curve(
    source: _Point, target: _Point, twin: int, centre: float
) -> tuple[_Point, ...]:
    """Start, two control points and end of a connection's cubic curve.

    `source` and `target` are corners of boxes, `twin` counts connections between the
    same two, and `centre` is the height of the middle of the picture.
    """
    half = _HEIGHT / 2
    bow = 30.0 * twin
    if source == target:
        left, right = source.x + 0.3 * _WIDTH, source.x + 0.7 * _WIDTH
        top = source.y - 52 - bow
        return (
            _Point(right, source.y),
            _Point(right + 14, top),
            _Point(left - 14, top),
            _Point(left, source.y),
        )
    steps = (target.x - source.x) / _COLUMN
    if steps >= 1:
        start = _Point(source.x + _WIDTH, source.y + half)
        end = _Point(target.x, target.y + half)
        reach = (end.x - start.x) * 0.45
        # Past what stands in the columns in between, on the outer side.
        outwards = -1 if (start.y + end.y) / 2 <= centre else 1
        lift = outwards * (bow + 72.0 * (steps - 1))
        return (
            start,
            _Point(start.x + reach, start.y + lift),
            _Point(end.x - reach, end.y + lift),
            end,
        )
    if steps == 0:
        side = source.x + _WIDTH
        out = side + 40 + bow
        return (
            _Point(side, source.y + half),
            _Point(out, source.y + half),
            _Point(out, target.y + half),
            _Point(side, target.y + half),
        )
    below = max(source.y, target.y) + _HEIGHT + 34 - 12 * steps + bow
    start = _Point(source.x + 0.4 * _WIDTH, source.y + _HEIGHT)
    end = _Point(target.x + 0.6 * _WIDTH, target.y + _HEIGHT)
    return start, _Point(start.x, below), _Point(end.x, below), end


def _add_population(
    svg: ElementTree.Element, population: Population, corner: _Point
) -> None:
    """A box with a name and a size, and what comes from or goes to the outside."""
    group = ElementTree.SubElement(svg, "g")
    is_border = population.input_from is not None or population.output_to is not None
    ElementTree.SubElement(
        group,
        "rect",
        {
            "x": f"{corner.x:g}",
            "y": f"{corner.y:g}",
            "width": f"{_WIDTH:g}",
            "height": f"{_HEIGHT:g}",
            "rx": "12",
            "fill": "white" if is_border else _PALE,
            "stroke": _INK,
            "stroke-width": "1.4",
        },
    )
    middle = _Point(corner.x + _WIDTH / 2, corner.y + 19)
    _add_text(group, population.name, middle, _INK, bold=True)
    size = _Point(middle.x, corner.y + 35)
    _add_text(group, str(population.size), size, _COLOURS["free"])
    if population.input_from is not None:
        entry = _Point(corner.x - 6, corner.y + 10)
        _add_text(group, f"{population.input_from} →", entry, _INK, anchor="end")
    if population.output_to is not None:
        entry = _Point(corner.x + _WIDTH + 6, corner.y + 10)
        _add_text(group, f"→ {population.output_to}", entry, _INK, anchor="start")


def _add_text(
    parent: ElementTree.Element,
    text: str,
    at: _Point,
    colour: str,
    *,
    anchor: str = "middle",
    bold: bool = False,
    halo: bool = False,
) -> None:
    style = {"x": f"{at.x:g}", "y": f"{at.y:g}", "fill": colour, "text-anchor": anchor}
    if bold:
        style["font-weight"] = "bold"
    if halo:
        style |= {"stroke": "white", "stroke-width": "5", "paint-order": "stroke"}
    ElementTree.SubElement(parent, "text", style).text = text


def _kind(transform: AnyModule) -> str:
    """What the weights of a connection do to their targets."""
    if not isinstance(transform, ConstrainedDense) or transform.sign is None:
        return "free"
    signs = np.asarray(transform.sign.value)
    if np.all(signs > 0):
        return "excites"
    return "inhibits" if np.all(signs < 0) else "excites or inhibits"


def _named(transform: AnyModule) -> str:
    """What a transform is, besides a dense layer."""
    if isinstance(transform, Sequential):
        return " ".join(filter(None, map(_named, transform.layers)))
    if isinstance(transform, Dense | ConstrainedDense):
        return ""
    return type(transform).__name__
