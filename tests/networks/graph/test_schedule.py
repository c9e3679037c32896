from graphlib import CycleError

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from nnx_ppo_fn.networks.graph.schedule import components, Edge, run_order


NAMES = "abcdef"


@st.composite
def graphs(draw):
    """Names and edges; those without delay lead forward in a random order."""
    names = NAMES[: draw(st.integers(1, 6))]
    order = draw(st.permutations(range(len(names))))
    edge = st.tuples(st.sampled_from(names), st.sampled_from(names), st.integers(0, 4))
    edges = [
        Edge(src, dst, delay)
        for src, dst, delay in draw(st.lists(edge, max_size=12))
        if delay > 0 or order[names.index(src)] < order[names.index(dst)]
    ]
    return names, edges


def adjacency(names, edges):
    matrix = np.zeros((len(names), len(names)))
    for edge in edges:
        matrix[names.index(edge.src), names.index(edge.dst)] = 1
    return matrix


def has_cycle(names, edges):
    """Whether some walk is as long as there are names."""
    walks = np.linalg.matrix_power(adjacency(names, edges), len(names))
    return bool(np.any(walks > 0))


@given(graphs())
@settings(max_examples=200, deadline=None)
def test_components_are_those_that_scipy_finds_in_an_order_that_leads_forward(graph):
    names, edges = graph
    found = components(names, edges)
    _, labels = connected_components(
        csr_array(adjacency(names, edges)), directed=True, connection="strong"
    )
    expected = {
        frozenset(n for n, label in zip(names, labels, strict=True) if label == one)
        for one in set(labels)
    }
    assert {frozenset(one.members) for one in found} == expected
    assert sum(len(one.members) for one in found) == len(names)
    place = {name: i for i, one in enumerate(found) for name in one.members}
    assert all(place[edge.src] <= place[edge.dst] for edge in edges)


@given(graphs())
@settings(max_examples=200, deadline=None)
def test_a_block_is_as_long_as_shorter_delays_form_no_cycle(graph):
    names, edges = graph
    for members, block in components(names, edges):
        inner = [edge for edge in edges if {edge.src, edge.dst} <= set(members)]
        if not has_cycle(names, inner):
            assert block == 0
            continue
        assert not has_cycle(names, [edge for edge in inner if edge.delay < block])
        assert has_cycle(names, [edge for edge in inner if edge.delay <= block])
        place = {name: number for number, name in enumerate(members)}
        for edge in inner:
            assert edge.delay >= block or place[edge.src] < place[edge.dst]


def test_a_feedback_of_three_steps_advances_three_steps_at_a_time():
    edges = [Edge("a", "b", 0), Edge("b", "c", 1), Edge("c", "a", 3)]
    (one,) = components("abc", edges)
    assert one == (("a", "b", "c"), 3)


def test_a_cycle_is_named():
    edges = [Edge("a", "b", 0), Edge("b", "c", 0), Edge("c", "b", 0)]
    with pytest.raises(CycleError) as raised:
        run_order("abc", edges)
    assert set(raised.value.args[1]) == {"b", "c"}
