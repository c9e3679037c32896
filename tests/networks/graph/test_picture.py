from xml.etree import ElementTree

import jax
import jax.numpy as jnp
import jax.random as jr

from graphs import twelve_populations
from nnx_ppo_fn import draw_graph, PopulationGraphBuilder


SPACE = "{http://www.w3.org/2000/svg}"


def read(graph):
    """The texts, the titles of connections and the ends that a picture shows."""
    svg = ElementTree.fromstring(draw_graph(graph))
    texts = [one.text for one in svg.iter(f"{SPACE}text")]
    titles = [one.text for one in svg.iter(f"{SPACE}title")]
    ends = [one.get("marker-end") for one in svg.iter(f"{SPACE}path")]
    return texts, titles, [end for end in ends if end]


def test_it_shows_every_population_and_connection():
    graph = twelve_populations(jr.key(0))
    texts, titles, ends = read(graph)
    assert set(graph.populations) <= set(texts)
    assert {"image →", "touch →", "→ arm", "→ value"} <= set(texts)
    assert {"LSTM", "AR1VariationalBottleneck 1", "5"} <= set(texts)
    assert sorted(title.split(":")[0] for title in titles) == sorted(graph.connections)
    assert "BG->thalamus: inhibits, delay 4" in titles
    assert len(ends) == len(graph.connections)


def test_signs_and_escapes():
    builder = PopulationGraphBuilder(key=jr.key(0)).add_input("a<b", 2, input_from="&")
    for name, sign in (("plus", 1), ("minus", -1), ("both", [1, -1])):
        builder.add_population(name, 2, activation=jax.nn.relu, sign=sign)
        builder.connect("a<b", name).connect(name, name, delay=1)
    graph = builder.add_output("c", 1).connect("plus", "c").finalize()
    texts, titles, ends = read(graph)
    assert {"a<b", "& →"} <= set(texts)
    kinds = {title.split(":")[0]: title.split(": ")[1] for title in titles}
    assert kinds["plus->plus"] == "excites, delay 1"
    assert kinds["minus->minus"] == "inhibits, delay 1"
    assert kinds["both->both"] == "excites or inhibits, delay 1"
    assert kinds["a<b->plus"] == "free, delay 0"
    assert ends.count("url(#inhibits)") == 1


def test_boxes_do_not_overlap():
    svg = ElementTree.fromstring(draw_graph(twelve_populations(jr.key(0))))
    sheet, *boxes = (
        [one.get(name) for name in ("x", "y", "width", "height")]
        for one in svg.iter(f"{SPACE}rect")
    )
    assert sheet[2:] == ["100%", "100%"]
    x, y, width, height = jnp.asarray([[float(n) for n in box] for box in boxes]).T
    apart = (jnp.abs(x[:, None] - x[None]) >= width[0]) | (
        jnp.abs(y[:, None] - y[None]) >= height[0]
    )
    assert bool(jnp.all(apart | jnp.eye(len(x), dtype=bool)))
    assert float(jnp.max(x + width)) < float(svg.get("width"))
