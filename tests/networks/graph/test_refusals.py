"""What does not fit is refused at once, and said plainly."""

import itertools

import equinox as eqx
import hypothesis
import jax.numpy as jnp
import jaxtyping
import numpy as np
import pytest
from hypothesis import strategies as st

from networks.graph.started import builder, connected, KEY
from nnx_ppo_fn import (
    Dense,
    GaussianNoise,
    PopulationGraphBuilder,
    Sequential,
)
from nnx_ppo_fn.networks._wrapping import matching, modules_by_path


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda b: b.add_population("eye", 3), "there is a population 'eye' already"),
        (lambda b: b.add_population("a", 0), "size must be at least 1, got 0"),
        (lambda b: b.add_population("a", 2, sign=0.5), "signs to be 1 or -1, got 0.5"),
        (
            lambda b: b.add_population("a", 2, sign=[1, -1, 1]),
            "one number or 2, one for each input",
        ),
        (
            lambda b: b.add_output("leg", 2, output_to="arm"),
            "'leg' and 'arm' are both the output 'arm'",
        ),
        (lambda b: b.connect("eye", "cortec"), "did you mean 'cortex'"),
        (lambda b: b.connect("retina", "cortex"), "no population 'retina'"),
        (
            lambda b: b.connect("eye", "cortex", delay=-1),
            "delay must be at least 0, got -1",
        ),
        (
            lambda b: b.connect("eye", "cortex", transform=jnp.tanh, reciprocal=True),
            "a transform is for one direction",
        ),
        (
            lambda b: b.connect("eye", "cortex", mask=jnp.ones((4, 3))),
            r"expected a mask \[3, 4\]",
        ),
        (
            lambda b: b.connect(
                "eye", "cortex", mask=jnp.ones((3, 4)), transform=jnp.tanh
            ),
            "a mask is for the weights of the default transform",
        ),
        (
            lambda b: b.connect("eye", "cortex", transform=Dense(3, 5, key=KEY)),
            r"in PopulationGraph.eye->cortex \(Dense\): expected an output \[B, 4\] "
            r"for an input \[B, 3\], got \[5, 5\]",
        ),
        (
            lambda b: b.connect("eye", "cortex", transform=Dense(4, 4, key=KEY)),
            r"in PopulationGraph.eye->cortex \(Dense\): expected x \[B, 4\]",
        ),
        (
            lambda b: b.add_population("a", 3, activation=GaussianNoise([0.1, 0.2])),
            "in PopulationGraph.a",
        ),
        (
            lambda b: b.add_population("a", 3, activation=eqx.nn.LayerNorm(3)),
            r"wrap it in Lift",
        ),
        (
            lambda b: b.add_population("a", 3, activation=0.5),
            r"in PopulationGraph.a \(float\): Stateless expects a function",
        ),
        (
            lambda b: b.connect("eye", "cortex").finalize(),
            "nothing is connected with the output 'arm'",
        ),
        (
            lambda b: b.add_population("a", 3, activation=GaussianNoise),
            r"make one: GaussianNoise\(...\)",
        ),
        (
            lambda b: b.connect("eye", "arm", transform=[jnp.tanh, Dense]),
            r"in PopulationGraph.eye->arm \(list\): .* make one: Dense\(...\)",
        ),
        (
            lambda b: b.add_input("ear", 2, input_from="image"),
            "'ear' and 'eye' both take the entry 'image', with 2 and with 3 features",
        ),
        (
            lambda b: b.add_input("ear", 2, input_from=""),
            "input_from must be the name of an entry, got ''",
        ),
        (
            lambda b: b.connect("cortex", "cortex", delay=1, reciprocal=True),
            "a connection of 'cortex' with itself has no way back",
        ),
    ],
)
def test_what_does_not_fit_is_refused_at_once(call, message):
    with pytest.raises(ValueError, match=message):
        call(builder())


@pytest.mark.parametrize("members", [["arm"], ["eye", "arm"], ["eye", "cortex", "arm"]])
def test_the_connection_that_closes_a_cycle_without_delay_is_refused(members):
    started = builder()
    for src, dst in itertools.pairwise(members):
        started.connect(src, dst)
    last, first = members[-1], members[0]
    with pytest.raises(ValueError) as caught:
        started.connect(last, first)
    turns = [[*members[k:], *members[: k + 1]] for k in range(len(members))]
    assert str(caught.value) in [
        f"a cycle without delay: {' -> '.join(map(repr, turn))}; give one of these "
        "connections a delay of at least 1"
        for turn in turns
    ]
    started.connect(last, first, delay=1)


def test_both_ways_without_delay_are_a_cycle():
    with pytest.raises(
        ValueError, match="a cycle without delay: '.*' -> '.*' -> '.*';"
    ):
        builder().connect("cortex", "arm", reciprocal=True)


def test_what_is_refused_leaves_the_builder_as_it_was():
    started = connected()
    before = started.finalize()
    for call in (
        lambda b: b.connect("eye", "cortex", reciprocal=True),
        lambda b: b.connect("arm", "eye"),
        lambda b: b.connect("eye", "arm", transform=Dense(3, 3, key=KEY)),
        lambda b: b.connect("eye", "arm", mask=np.ones((2, 3))),
        lambda b: b.add_population("a", 3, sign=2),
        lambda b: b.add_population("a", 3, sign=1, activation=Dense(3, 4, key=KEY)),
        lambda b: b.add_input("a", 2, input_from="image"),
        lambda b: b.add_output("a", 2, output_to="arm"),
    ):
        with pytest.raises(ValueError):
            call(started)
    assert eqx.tree_equal(started.finalize(), before)
    # No sign has been left behind either.
    started.add_population("a", 3).connect("a", "arm", transform=Dense(3, 2, key=KEY))


@pytest.fixture
def no_type_checker():
    """As for most users: no type checker speaks before the library does."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


@pytest.mark.parametrize(
    "name, problem",
    [
        *((f"a{part}b", f"has '{part}' in it") for part in ("->", *"*./[]()")),
        ("12", "looks like the position of a module"),
        ("__activation__", "is where recordings stand"),
        *((name, "is empty, or has blanks around it") for name in ("", " a", "a\n")),
    ],
)
def test_a_name_that_means_something_else_is_refused(name, problem):
    for add in (
        lambda b: b.add_population(name, 2),
        lambda b: b.add_input(name, 2, input_from="x"),
        lambda b: b.add_output(name, 2, output_to="y"),
        lambda b: b.add_output(name, 2),
    ):
        with pytest.raises(ValueError) as caught:
            add(builder())
        assert f"a population cannot be called {name!r}: the name {problem}" in str(
            caught.value
        )


@hypothesis.given(names=st.sets(st.text("a1-> _é", max_size=4), min_size=2, max_size=3))
@hypothesis.settings(max_examples=15, deadline=None)
def test_names_that_are_taken_name_one_place_each(names):
    """Connections are told apart, and a path without a star means one module."""
    started = PopulationGraphBuilder(key=KEY)
    taken = []
    for name in sorted(names):
        try:
            started.add_input(name, 1, input_from="x")
        except ValueError:
            continue
        taken.append(name)
    started.add_output("y", 1)
    pairs = [(src, dst) for src in taken for dst in [*taken, "y"]]
    hypothesis.assume(pairs)
    for src, dst in 2 * pairs:
        started.connect(src, dst, delay=1, transform=jnp.tanh)
    graph = started.finalize()
    assert len(graph.connections) == 2 * len(pairs)
    network = Sequential([graph])
    paths = [path for path, _ in modules_by_path(network)]
    assert len(set(paths)) == len(paths) == 3 + len(taken) + 2 * len(pairs)
    assert all(matching(path, paths) == [path] for path in paths)


@pytest.mark.usefixtures("no_type_checker")
@pytest.mark.parametrize("wrong", [1, None, b"eye", ("eye",), np.zeros(2), ["eye"]])
def test_a_name_is_a_string(wrong):
    for call, what in (
        (lambda b: b.add_population(wrong, 2), "the name of a population"),
        (lambda b: b.add_input(wrong, 2, input_from="x"), "the name of a population"),
        (lambda b: b.add_output(wrong, 2), "the name of a population"),
        (lambda b: b.connect(wrong, "arm"), "the name of a population"),
        (lambda b: b.connect("eye", wrong), "the name of a population"),
        (lambda b: b.add_input("a", 2, input_from=wrong), "input_from to be"),
        (lambda b: b.add_output("a", 2, output_to=wrong), "output_to to be"),
    ):
        if wrong is None and "to be" in what:
            continue
        with pytest.raises(TypeError) as caught:
            call(builder())
        assert str(caught.value).startswith(f"expected {what}")
        assert str(caught.value).endswith(f"a string, got {wrong!r}")


@pytest.mark.usefixtures("no_type_checker")
@pytest.mark.parametrize("wrong", [True, 2.0, 2.5, "2", None, (2,), jnp.array(2)])
def test_sizes_and_delays_are_integers(wrong):
    for call, what in (
        (lambda b: b.add_population("a", wrong), "size"),
        (lambda b: b.add_input("a", wrong, input_from="image"), "size"),
        (lambda b: b.add_output("a", wrong), "size"),
        (lambda b: b.connect("eye", "arm", delay=wrong), "delay"),
    ):
        with pytest.raises(TypeError) as caught:
            call(builder())
        assert str(caught.value) == f"{what} must be an integer, got {wrong!r}"


@pytest.mark.usefixtures("no_type_checker")
def test_both_ways_is_true_or_false():
    for wrong in (1, "no", None):
        with pytest.raises(TypeError, match="reciprocal must be True or False"):
            builder().connect("eye", "arm", delay=1, reciprocal=wrong)


def test_a_graph_needs_an_input_and_an_output():
    with pytest.raises(ValueError, match="no input"):
        PopulationGraphBuilder(key=KEY).add_output("arm", 2).finalize()
    with pytest.raises(ValueError, match="no output"):
        PopulationGraphBuilder(key=KEY).add_input("a", 2, input_from="x").finalize()
    with pytest.raises(TypeError, match="one typed key"):
        PopulationGraphBuilder(key=jnp.zeros(2, jnp.uint32))
