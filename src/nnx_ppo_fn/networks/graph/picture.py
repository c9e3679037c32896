"""A picture of a graph: its populations, its connections, their delays and signs."""

import unicodedata
from collections.abc import Mapping
from typing import Any, final, NamedTuple
from xml.etree import ElementTree

import numpy as np

from .._wrapping import Wrapper
from ..constrained import ConstrainedDense
from ..containers import Sequential
from ..feedforward import Dense, Stateless
from ..lifting import layer_name, Lift
from ..override import Override
from ..types import AnyModule
from ._layout import arranged, ARROW, Box, Line, MARGIN, Node
from .graph import PopulationGraph
from .population import Population


_FONT_SIZE = 12
_LONGEST_LABEL = 32
_NOTES, _SAMPLE = 20.0, 38.0
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


@final
class _Style(NamedTuple):
    """What a connection is called, what its weights do, and whether it is clamped."""

    label: str
    kind: str
    is_overridden: bool


def draw_graph(graph: Any) -> SVG:
    """Draws a graph from left to right, in the order in which its populations run.

    Connections leave a population on the side of their target, and each arrives with
    its label: its delay in steps, none standing for the same step, and its transform if
    that is more than a dense layer. Dale's law shows in the colour and in the end: an
    arrow for connections that excite, a bar for those that inhibit. What is overridden
    is dashed.

    **Arguments:**

    - `graph`: from `PopulationGraphBuilder.finalize`, with or without what
      `with_recording` and `with_override` put into it.

    **Returns:**

    An SVG document, a `str`.

    **Raises:**

    `TypeError` for what is no graph.

    **Example:**

    ```python
    pathlib.Path("graph.svg").write_text(draw_graph(graph))
    ```
    """
    graph = _bare(graph)
    if not isinstance(graph, PopulationGraph):
        raise TypeError(
            f"expected a PopulationGraph to draw, got {type(graph).__name__}; take the "
            "one that stands in the network, such as network.layers[1]"
        )
    styles = {
        name: _Style(
            _label(one.transform, one.delay),
            _kind(one.transform),
            _is_overridden(one.transform),
        )
        for name, one in graph.connections.items()
    }
    nodes = {name: _node(graph.populations[name]) for name in _order(graph)}
    lines = [
        Line(one.src, one.dst, _width(styles[name].label))
        for name, one in graph.connections.items()
    ]
    layout = arranged(nodes, lines)
    notes = _notes(graph, styles)
    notes_width = sum(_note_width(note) for note in notes) + 2 * MARGIN
    svg = _sheet(
        max(layout.width, notes_width), layout.height + (_NOTES if notes else 0)
    )
    _add_ends(svg)
    x = MARGIN
    for note in notes:
        _add_note(svg, note, x, layout.height)
        x += _note_width(note)
    for name, way in zip(graph.connections, layout.ways, strict=True):
        style = styles[name]
        group = ElementTree.SubElement(svg, "g")
        title = f"{name}: {style.kind}, delay {graph.connections[name].delay}"
        ElementTree.SubElement(group, "title").text = title
        _add_line(group, way.path, style)
    for name, population in graph.populations.items():
        _add_population(svg, population, layout.boxes[name])
    for style, way in zip(styles.values(), layout.ways, strict=True):
        if style.label:
            colour = _COLOURS[style.kind]
            _add_text(svg, style.label, way.x, way.y + 4, colour, halo=True)
    return SVG(ElementTree.tostring(svg, encoding="unicode"))


def _order(graph: PopulationGraph) -> list[str]:
    """The populations by component, and within a component from the inputs on."""
    depth = {
        name: 0 if one.input_from is not None else len(graph.populations)
        for name, one in graph.populations.items()
    }
    for _ in graph.populations:
        for one in graph.connections.values():
            depth[one.dst] = min(depth[one.dst], depth[one.src] + 1)
    return [
        name
        for one in graph.components
        for name in sorted(one.members, key=lambda name: (depth[name], name))
    ]


def _node(population: Population) -> Node:
    return Node(
        max(_width(population.name, bold=True) + 24, 72),
        _width(_entry(population)),
        _width(_exit(population)),
    )


def _entry(population: Population) -> str:
    return "" if population.input_from is None else f"{population.input_from} →"


def _exit(population: Population) -> str:
    return "" if population.output_to is None else f"→ {population.output_to}"


def _width(text: str, *, bold: bool = False) -> float:
    """How wide a text is at most, in the fonts that browsers take for sans-serif."""
    sizes = [
        0.45
        if letter in "fijlrt.,:;|!'()[] "
        else 1.0
        if letter in "mwMW@%→" or unicodedata.east_asian_width(letter) in "WF"
        else 0.8
        if letter.isupper()
        else 0.65
        for letter in text
    ]
    return _FONT_SIZE * sum(sizes) * (1.12 if bold else 1.0)


def _sheet(width: float, height: float) -> ElementTree.Element:
    """An empty picture."""
    size = {"width": f"{width:.0f}", "height": f"{height:.0f}"}
    svg = ElementTree.Element(
        "svg",
        {
            "xmlns": "http://www.w3.org/2000/svg",
            "viewBox": f"0 0 {width:.0f} {height:.0f}",
            **size,
            "font-family": "sans-serif",
            "font-size": str(_FONT_SIZE),
        },
    )
    sheet = {"width": "100%", "height": "100%", "fill": "white"}
    ElementTree.SubElement(svg, "rect", sheet)
    return svg


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
            "M 5 0 H 8 V 10 H 5 z" if kind == "inhibits" else "M 0 0 L 10 5 L 0 10 z"
        )
        ElementTree.SubElement(marker, "path", {"d": shape, "fill": colour})


def _add_line(group: ElementTree.Element, path: str, style: _Style) -> None:
    line = {
        "d": path,
        "fill": "none",
        "stroke": _COLOURS[style.kind],
        "stroke-width": "1.6",
        "marker-end": f"url(#{style.kind.replace(' ', '-')})",
    }
    if style.is_overridden:
        line["stroke-dasharray"] = "5 4"
    ElementTree.SubElement(group, "path", line)


def _add_population(svg: ElementTree.Element, population: Population, box: Box) -> None:
    """A box with a name and a size, and what comes from or goes to the outside."""
    group = ElementTree.SubElement(svg, "g")
    is_border = population.input_from is not None or population.output_to is not None
    rectangle = {
        "x": f"{box.left:.1f}",
        "y": f"{box.top:.1f}",
        "width": f"{box.width:.1f}",
        "height": f"{box.height:.1f}",
        "rx": "12",
        "fill": "white" if is_border else _PALE,
        "stroke": _INK,
        "stroke-width": "1.4",
    }
    if _is_overridden(population.activation):
        rectangle["stroke-dasharray"] = "5 4"
    ElementTree.SubElement(group, "rect", rectangle)
    x, y = box.left + box.width / 2, box.top + box.height / 2
    _add_text(group, population.name, x, y - 3, _INK, bold=True)
    _add_text(group, str(population.size), x, y + 13, _COLOURS["free"])
    if _entry(population):
        x = box.left - ARROW / 2
        _add_text(group, _entry(population), x, box.before + 4, _INK, anchor="end")
    if _exit(population):
        x = box.left + box.width + ARROW / 2
        _add_text(group, _exit(population), x, box.after + 4, _INK, anchor="start")


def _add_text(
    parent: ElementTree.Element,
    text: str,
    x: float,
    y: float,
    colour: str,
    *,
    anchor: str = "middle",
    bold: bool = False,
    halo: bool = False,
) -> None:
    style = {
        "x": f"{x:.1f}",
        "y": f"{y:.1f}",
        "fill": colour,
        "text-anchor": anchor,
    }
    if bold:
        style["font-weight"] = "bold"
    if halo:
        style |= {"stroke": "white", "stroke-width": "7", "paint-order": "stroke"}
    ElementTree.SubElement(parent, "text", style).text = text


def _notes(graph: PopulationGraph, styles: Mapping[str, _Style]) -> list[_Style]:
    """What colours, dashes and numbers mean, as far as there are any."""
    kinds = {style.kind for style in styles.values()}
    notes = [_Style(kind, kind, False) for kind in _COLOURS if kind in kinds - {"free"}]
    modules = [one.transform for one in graph.connections.values()]
    modules += [one.activation for one in graph.populations.values()]
    if any(map(_is_overridden, modules)):
        notes.append(_Style("overridden", "free", True))
    if any(one.delay for one in graph.connections.values()):
        notes.append(_Style("numbers: delays in steps", "", False))
    return notes


def _note_width(note: _Style) -> float:
    return _width(note.label) + (_SAMPLE if note.kind else 0) + 20


def _add_note(svg: ElementTree.Element, note: _Style, x: float, y: float) -> None:
    """A sample of a line, unless the note is of something else, and what it means."""
    group = ElementTree.SubElement(svg, "g")
    if note.kind:
        _add_line(group, f"M {x:.1f} {y:.1f} H {x + _SAMPLE - 8:.1f}", note)
        x += _SAMPLE
    _add_text(group, note.label, x, y + 4, _COLOURS["free"], anchor="start")


def _is_overridden(module: AnyModule) -> bool:
    """Whether something else is put out than the module says."""
    while isinstance(module, Wrapper):
        if isinstance(module, Override):
            return True
        module = module.wrapped
    return isinstance(module, Sequential) and any(map(_is_overridden, module.layers))


def _layers(module: AnyModule) -> list[AnyModule]:
    """What a module does, one after the other, without what is around it."""
    bare = _bare(module)
    if isinstance(bare, Sequential):
        return [one for layer in bare.layers for one in _layers(layer)]
    return [bare]


def _bare(module: Any) -> Any:
    """A module without what is around it."""
    while isinstance(module, Wrapper):
        module = module.wrapped
    return module


def _kind(transform: AnyModule) -> str:
    """What the weights of a connection do to their targets."""
    first = _layers(transform)[0]
    if not isinstance(first, ConstrainedDense) or first.sign is None:
        return "free"
    signs = np.asarray(first.sign.value)
    if np.all(signs > 0):
        return "excites"
    return "inhibits" if np.all(signs < 0) else "excites or inhibits"


def _label(transform: AnyModule, delay: int) -> str:
    """What a connection is, besides a dense layer in the same step."""
    names = " ".join(
        layer_name(layer.fn)
        if isinstance(layer, Stateless)
        else layer_name(layer.layer)
        if isinstance(layer, Lift)
        else type(layer).__name__
        for layer in _layers(transform)
        if not isinstance(layer, Dense | ConstrainedDense)
    )
    if len(names) > _LONGEST_LABEL:
        names = f"{names[: _LONGEST_LABEL - 1]}…"
    return f"{names} {delay or ''}".strip()
