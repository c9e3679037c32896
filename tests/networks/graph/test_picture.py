from xml.etree import ElementTree

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from matplotlib.font_manager import FontProperties
from matplotlib.textpath import TextPath

from graphs import twelve_populations
from nnx_ppo_fn import (
    ConstrainedDense,
    draw_graph,
    GaussianNoise,
    Lift,
    LSTM,
    PopulationGraphBuilder,
    with_override,
    with_recording,
)
from nnx_ppo_fn.networks.graph.picture import _width


SPACE = "{http://www.w3.org/2000/svg}"


def read(graph):
    """The texts, the titles of connections and their lines in a picture, in order."""
    svg = ElementTree.fromstring(draw_graph(graph))
    texts = [one.text for one in svg.iter(f"{SPACE}text")]
    titles = [one.text for one in svg.iter(f"{SPACE}title")]
    groups = [
        one for one in svg.iter(f"{SPACE}g") if one.find(f"{SPACE}title") is not None
    ]
    return texts, titles, [group.find(f"{SPACE}path").attrib for group in groups]


def chain():
    """Connections with all sorts of transforms, from a population that inhibits."""
    builder = PopulationGraphBuilder(key=jr.key(0))
    inhibiting = [ConstrainedDense(2, 2, key=jr.key(1), sign=-1), jnp.sin]
    return (
        builder.add_input("in", 2, input_from="x", activation=jax.nn.relu, sign=-1)
        .add_population("middle", 2, activation=GaussianNoise(0.1))
        .add_output("out", 2)
        .connect("in", "middle", transform=inhibiting)
        .connect("middle", "middle", transform=jnp.tanh, delay=1)
        .connect("middle", "out", transform=Lift(eqx.nn.LayerNorm(2)))
        .connect("middle", "out", transform=[LSTM(2, 2, key=jr.key(2)), jnp.cos])
        .finalize()
    )


def test_it_shows_every_population_and_connection():
    graph = twelve_populations(jr.key(0))
    texts, titles, lines = read(graph)
    assert set(graph.populations) <= set(texts)
    assert {"image →", "touch →", "→ arm", "→ value"} <= set(texts)
    assert {"LSTM", "AR1VariationalBottleneck 1", "5"} <= set(texts)
    assert [title.split(": ")[0] for title in titles] == list(graph.connections)
    assert "BG->thalamus: inhibits, delay 4" in titles
    assert len(lines) == len(graph.connections)
    assert {"inhibits", "numbers: delays in steps"} <= set(texts)


def test_signs_and_escapes():
    builder = PopulationGraphBuilder(key=jr.key(0)).add_input("a<b", 2, input_from="&")
    for name, sign in (("plus", 1), ("minus", -1), ("both", [1, -1])):
        builder.add_population(name, 2, activation=jax.nn.relu, sign=sign)
        builder.connect("a<b", name).connect(name, name, delay=1)
    graph = builder.add_output("c", 1).connect("plus", "c").finalize()
    texts, titles, lines = read(graph)
    assert {"a<b", "& →"} <= set(texts)
    kinds = {title.split(":")[0]: title.split(": ")[1] for title in titles}
    assert kinds["plus->plus"] == "excites, delay 1"
    assert kinds["minus->minus"] == "inhibits, delay 1"
    assert kinds["both->both"] == "excites or inhibits, delay 1"
    assert kinds["a<b->plus"] == "free, delay 0"
    ends = [line["marker-end"] for line in lines]
    assert ends.count("url(#inhibits)") == 1


def test_transforms_are_named_and_the_first_one_has_the_sign():
    texts, titles, _ = read(chain())
    assert {"sin", "tanh 1", "LayerNorm", "LSTM cos"} <= set(texts)
    assert titles[0] == "in->middle: inhibits, delay 0"
    assert {title.split(": ")[1] for title in titles[1:]} == {
        "free, delay 0",
        "free, delay 1",
    }


def test_what_records_is_drawn_as_it_is():
    assert draw_graph(with_recording(chain(), "*")) == draw_graph(chain())


@pytest.mark.parametrize("is_recorded", [False, True])
def test_what_is_overridden_is_dashed(is_recorded):
    clamps = {".in->middle": jnp.zeros_like, ".middle": jnp.ones_like}
    graph = with_override(chain(), clamps)
    graph = with_recording(graph, "*") if is_recorded else graph
    texts, titles, lines = read(graph)
    assert titles == read(chain())[1]
    assert set(texts) == {*read(chain())[0], "overridden"}
    assert ["stroke-dasharray" in line for line in lines] == [True, False, False, False]
    svg = ElementTree.fromstring(draw_graph(graph))
    dashed = ["stroke-dasharray" in one.attrib for one in svg.iter(f"{SPACE}rect")]
    # The sheet and the populations, of which the second one is clamped.
    assert dashed == [False, False, True, False]


def test_what_is_no_graph_is_refused():
    with pytest.raises(TypeError, match="expected a PopulationGraph to draw, got LSTM"):
        draw_graph(LSTM(2, 2, key=jr.key(0)))


@pytest.mark.parametrize("bold", [False, True])
@pytest.mark.parametrize(
    "text", ["V1", "MMMM", "WWWW", "illicit", "primary motor cortex", "p0_(x) → 42"]
)
def test_texts_are_as_wide_as_is_thought(text, bold):
    """In DejaVu Sans, the widest of the fonts that stand for sans-serif."""
    font = FontProperties(family="DejaVu Sans", weight="bold" if bold else "normal")
    box = TextPath((0, 0), text, size=12, prop=font).get_extents()
    assert box.width <= _width(text, bold=bold) <= 1.6 * box.width


def test_long_names_fit_into_the_picture():
    name = "mediodorsal thalamic nucleus"
    graph = (
        PopulationGraphBuilder(key=jr.key(0))
        .add_input(name, 2, input_from="what the eyes and the skin have to say")
        .add_output("y", 2, output_to="torques of the joints of the forelimb")
        .connect(name, "y", transform=[LSTM(2, 2, key=jr.key(1))] * 12)
        .finalize()
    )
    svg = ElementTree.fromstring(draw_graph(graph))
    left, top, width, height = map(float, svg.get("viewBox").split())
    assert (left, top) == (0, 0)
    shift = {"start": 0.0, "middle": 0.5, "end": 1.0}
    for one in svg.iter(f"{SPACE}text"):
        weight = one.get("font-weight", "normal")
        font = FontProperties(family="DejaVu Sans", weight=weight)
        box = TextPath((0, 0), one.text, size=12, prop=font).get_extents()
        start = float(one.get("x")) - shift[one.get("text-anchor")] * box.width
        assert 0 <= start and start + box.width <= width
        assert 12 <= float(one.get("y")) <= height
    (sheet, *boxes) = svg.iter(f"{SPACE}rect")
    assert (sheet.get("width"), sheet.get("height")) == ("100%", "100%")
    widths = [float(box.get("width")) for box in boxes]
    font = FontProperties(family="DejaVu Sans", weight="bold")
    assert widths[0] > TextPath((0, 0), name, size=12, prop=font).get_extents().width
    assert np.all(np.asarray(widths) >= 72)
