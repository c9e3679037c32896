"""The pictures in the pages are those that the code in the pages draws."""

from nnx_ppo_fn import draw_graph
from pages import PAGES, python_blocks


def test_the_picture_of_a_graph_is_of_the_graph_in_the_page():
    namespace = {}
    first, *_ = python_blocks(PAGES / "graphs.md")
    described, used, _ = first.partition("state = ")
    assert used
    exec(described, namespace)
    kept = PAGES / "pictures" / "graph.svg"
    assert kept.read_text() == draw_graph(namespace["graph"]), (
        "the code in graphs.md writes graph.svg; if that looks right, copy it to "
        f"{kept.relative_to(PAGES)}"
    )
