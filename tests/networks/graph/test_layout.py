"""Nothing in a picture stands in the way of anything else."""

import itertools as it
import re

import numpy as np
from hypothesis import example, given, settings, strategies as st

from nnx_ppo_fn.networks.graph._layout import arranged, Line, Node


HALF_LINE = 6.0
widths = st.one_of(st.just(0.0), st.floats(5.0, 200.0))


LOOPS = (
    {"a": Node(72.0), "b": Node(72.0)},
    [Line(name, name, 9.0) for name in "ab" for _ in range(3)],
)


@st.composite
def graphs(draw):
    names = [f"n{number}" for number in range(draw(st.integers(1, 9)))]
    nodes = {
        name: Node(draw(st.floats(72.0, 200.0)), draw(widths), draw(widths))
        for name in names
    }
    ends = st.sampled_from(names)
    return nodes, draw(st.lists(st.builds(Line, ends, ends, widths), max_size=24))


def traced(path):
    """Points along a path, each stretch of it from one end to the other."""
    steps = re.findall(r"([MHC]) ([^MHC]*)", path)
    points = []
    for command, text in steps:
        numbers = [float(number) for number in re.findall(r"-?[\d.]+", text)]
        if command == "M":
            points.append(np.asarray([numbers]))
            continue
        here = points[-1][-1]
        if command == "H":
            ends = [here, [numbers[0], here[1]]]
            corners = np.asarray([ends[0], ends[0], ends[1], ends[1]])
        else:
            corners = np.vstack([here, np.reshape(numbers, (3, 2))])
        t = np.linspace(0, 1, 40)[:, None]
        powers = [(1 - t) ** 3, 3 * t * (1 - t) ** 2, 3 * t**2 * (1 - t), t**3]
        points.append(
            sum(p * corner for p, corner in zip(powers, corners, strict=True))
        )
    return np.concatenate(points)


def overlap(one, other):
    """Whether rectangles `(left, top, right, bottom)` share an inner point."""
    return (
        max(one[0], other[0]) < min(one[2], other[2]) - 1e-6
        and max(one[1], other[1]) < min(one[3], other[3]) - 1e-6
    )


def runs_through(points, rectangle):
    left, top, right, bottom = np.asarray(rectangle) + [0.2, 0.2, -0.2, -0.2]
    x, y = points.T
    return np.any((left < x) & (x < right) & (top < y) & (y < bottom))


def text(middle, y, width):
    return middle - width / 2, y - HALF_LINE, middle + width / 2, y + HALF_LINE


@settings(max_examples=30, deadline=None)
@given(graphs())
@example(LOOPS)
def test_nothing_covers_anything_else(graph):
    nodes, lines = graph
    layout = arranged(nodes, lines)
    boxes = {
        name: (box.left, box.top, box.left + box.width, box.top + box.height)
        for name, box in layout.boxes.items()
    }
    beside = [
        text(x, y, width)
        for name, box in layout.boxes.items()
        for x, y, width in (
            (box.left - 6.5 - nodes[name].before / 2, box.before, nodes[name].before),
            (
                boxes[name][2] + 6.5 + nodes[name].after / 2,
                box.after,
                nodes[name].after,
            ),
        )
        if width
    ]
    labels = {
        number: text(way.x, way.y, line.label)
        for number, (line, way) in enumerate(zip(lines, layout.ways, strict=True))
        if line.label
    }
    paths = [traced(way.path) for way in layout.ways]
    solid = [*boxes.values(), *beside, *labels.values()]
    for one, other in it.combinations(solid, 2):
        assert not overlap(one, other)
    for left, top, right, bottom in solid:
        assert 0 <= left and right <= layout.width
        assert 0 <= top and bottom <= layout.height
    for number, points in enumerate(paths):
        assert np.all(points >= 0)
        assert np.all(points <= (layout.width, layout.height))
        assert not any(runs_through(points, box) for box in boxes.values())
        assert not any(runs_through(points, one) for one in beside)
        # Loops around a loop may pass behind its label.
        assert not any(
            runs_through(points, one)
            for other, one in labels.items()
            if other != number and lines[other].src != lines[other].dst
        )
    for line, points in zip(lines, paths, strict=True):
        for name, point in ((line.src, points[0]), (line.dst, points[-1])):
            left, top, right, bottom = boxes[name]
            is_at_side = np.min(np.abs(point[0] - (left, right))) < 0.1
            is_on_top = abs(point[1] - top) < 0.1
            assert is_at_side or (is_on_top and line.src == line.dst)
            assert top - 0.1 <= point[1] <= bottom + 0.1
            assert left - 0.1 <= point[0] <= right + 0.1
    ports = [tuple(points[end]) for points in paths for end in (0, -1)]
    loops = sum(line.src == line.dst for line in lines)
    assert len(set(ports)) >= len(ports) - 2 * loops


def test_lines_cross_only_where_they_must():
    """Two chains beside each other, whose nodes come in turns, cross nowhere."""
    names = ["a0", "b0", "b1", "a1", "a2", "b2"]
    nodes = {name: Node(72.0) for name in names}
    lines = [
        Line(f"{chain}{step}", f"{chain}{step + 1}")
        for chain in "ab"
        for step in (0, 1)
    ]
    boxes = arranged(nodes, lines).boxes
    above = [boxes[f"a{step}"].top < boxes[f"b{step}"].top for step in range(3)]
    assert len(set(above)) == 1
    lefts = [boxes[f"a{step}"].left for step in range(3)]
    assert lefts == sorted(set(lefts))


def test_a_chain_is_drawn_straight():
    nodes = {name: Node(72.0) for name in "abc"}
    boxes = arranged(nodes, [Line("a", "b"), Line("b", "c")]).boxes
    tops = [box.top for box in boxes.values()]
    np.testing.assert_allclose(tops, tops[0], atol=1e-6)
