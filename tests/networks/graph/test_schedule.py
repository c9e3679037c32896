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


def shortest_way_round(members, inner):
    """The smallest total delay of a cycle, by Floyd and Warshall's algorithm."""
    far = {(a, b): np.inf for a in members for b in members}
    for edge in inner:
        far[edge.src, edge.dst] = min(far[edge.src, edge.dst], edge.delay)
    for k in members:
        for a in members:
            for b in members:
                far[a, b] = min(far[a, b], far[a, k] + far[k, b])
    return min(far[a, a] for a in members)


@given(graphs())
@settings(max_examples=300, deadline=None)
def test_what_a_block_needs_is_there(graph):
    names, edges = graph
    for members, block, ahead in components(names, edges):
        inner = [edge for edge in edges if {edge.src, edge.dst} <= set(members)]
        if not has_cycle(names, inner):
            assert block == 0 and ahead == (0,)
            continue
        assert min(ahead) == 0
        place = {name: number for number, name in enumerate(members)}
        for edge in inner:
            # A block of the target begins after one of the source by `behind` steps.
            behind = ahead[place[edge.dst]] - ahead[place[edge.src]]
            is_past = edge.delay - behind >= block
            is_earlier = place[edge.src] < place[edge.dst]
            assert is_past or (is_earlier and edge.delay >= behind)


@given(graphs())
@settings(max_examples=300, deadline=None)
def test_a_block_is_no_longer_than_a_way_round_and_as_long_where_all_meet(graph):
    names, edges = graph
    for members, block, _ in components(names, edges):
        inner = [edge for edge in edges if {edge.src, edge.dst} <= set(members)]
        if block == 0:
            continue
        longest = shortest_way_round(members, inner)
        assert 1 <= block <= longest
        all_meet = any(
            not has_cycle(names, [edge for edge in inner if one not in edge[:2]])
            for one in members
        )
        if all_meet:
            assert block == longest


def test_a_feedback_of_three_steps_advances_three_steps_at_a_time():
    edges = [Edge("a", "b", 0), Edge("b", "c", 0), Edge("c", "a", 3)]
    (one,) = components("abc", edges)
    assert one == (("a", "b", "c"), 3, (0, 0, 0))


def test_a_ring_of_two_steps_each_advances_six_steps_at_a_time():
    edges = [Edge("a", "b", 2), Edge("b", "c", 2), Edge("c", "a", 2)]
    (one,) = components("abc", edges)
    assert one == (("a", "b", "c"), 6, (0, 2, 4))


def test_a_cycle_is_named():
    edges = [Edge("a", "b", 0), Edge("b", "c", 0), Edge("c", "b", 0)]
    with pytest.raises(CycleError) as raised:
        run_order("abc", edges)
    assert set(raised.value.args[1]) == {"b", "c"}
