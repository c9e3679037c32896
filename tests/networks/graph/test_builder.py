import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from helpers import tree_equal
from nnx_ppo_fn import (
    CompositionError,
    ConstrainedDense,
    Dense,
    GaussianNoise,
    PopulationGraphBuilder,
)


KEY = jr.key(0)


def builder():
    """An input of 3, a population of 4 and an output of 2, not connected yet."""
    return (
        PopulationGraphBuilder(key=KEY)
        .add_input("eye", 3, input_from="image")
        .add_population("cortex", 4, activation=jnp.tanh)
        .add_output("arm", 2)
    )


def connected():
    return builder().connect("eye", "cortex").connect("cortex", "arm")


def test_weights_depend_on_the_names_of_the_two_populations_alone():
    small = connected().finalize()
    large = (
        PopulationGraphBuilder(key=KEY)
        .add_population("cortex", 4)
        .add_output("arm", 2)
        .connect("cortex", "arm")
        .connect("cortex", "arm", delay=2)
        .add_input("eye", 3, input_from="image")
        .connect("eye", "cortex", reciprocal=True, delay=1)
        .connect("eye", "cortex")
        .finalize()
    )
    for name, one in small.connections.items():
        assert tree_equal(
            one.transform.kernel, large.connections[name].transform.kernel
        )
    names = ["cortex->arm", "cortex->arm (2)", "cortex->eye", "eye->cortex"]
    assert list(large.connections) == [*names, "eye->cortex (2)"]
    kernels = [
        large.connections[name].transform.kernel
        for name in ("eye->cortex", "eye->cortex (2)")
    ]
    assert not np.any(kernels[0] == kernels[1])


def test_what_was_built_stays_as_it_was():
    started = connected()
    small = started.finalize()
    large = started.connect("eye", "arm").finalize()
    assert len(small.connections) == 2 and len(large.connections) == 3
    assert isinstance(small.connections["eye->cortex"].transform, Dense)


def test_a_reciprocal_connection_is_two():
    graph = connected().connect("cortex", "eye", delay=2, reciprocal=True).finalize()
    assert graph.connections["cortex->eye"].delay == 2
    assert graph.connections["eye->cortex (2)"].delay == 2
    assert graph.connections["eye->cortex (2)"].transform.kernel.shape == (3, 4)


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda b: b.add_population("eye", 3), "there is a population 'eye' already"),
        (lambda b: b.add_population("a->b", 3), "a name without '->'"),
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
            "the mask decides on weights",
        ),
        (
            lambda b: b.add_population("a", 4, sign=1).connect(
                "a", "cortex", transform=jnp.tanh
            ),
            "the sign of 'a' decides on weights",
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
            lambda b: (
                b.connect("eye", "cortex")
                .connect("cortex", "arm")
                .connect("arm", "cortex")
                .finalize()
            ),
            "a cycle without delay: ('arm' -> 'cortex' -> 'arm'|"
            "'cortex' -> 'arm' -> 'cortex')",
        ),
        (
            lambda b: b.connect("cortex", "arm").connect("arm", "arm").finalize(),
            "a cycle without delay: 'arm' -> 'arm'",
        ),
    ],
)
def test_what_does_not_fit_is_refused_at_once(call, message):
    with pytest.raises(ValueError, match=message):
        call(builder())


def test_a_graph_needs_an_input_and_an_output():
    with pytest.raises(ValueError, match="no input"):
        PopulationGraphBuilder(key=KEY).add_output("arm", 2).finalize()
    with pytest.raises(ValueError, match="no output"):
        PopulationGraphBuilder(key=KEY).add_input("a", 2, input_from="x").finalize()
    with pytest.raises(TypeError, match="one typed key"):
        PopulationGraphBuilder(key=jnp.zeros(2, jnp.uint32))


def test_signs_and_masks_make_constrained_connections():
    mask = np.arange(12).reshape(3, 4) % 2 == 0
    graph = (
        connected()
        .add_population("inhibitory", 3, activation=jax.nn.relu, sign=-1)
        .connect("eye", "inhibitory", mask=np.ones((3, 3)))
        .connect("inhibitory", "cortex", delay=1, mask=mask)
        .finalize()
    )
    inhibitory = graph.connections["inhibitory->cortex"].transform
    assert isinstance(inhibitory, ConstrainedDense)
    np.testing.assert_array_equal(inhibitory.kernel < 0, mask)
    free = graph.connections["eye->inhibitory"].transform
    assert free.sign is None and np.any(free.kernel < 0) and np.any(free.kernel > 0)
    constrained = ConstrainedDense(3, 4, key=KEY, sign=-1)
    graph = (
        builder()
        .add_population("inhibitory", 3, sign=-1)
        .connect("inhibitory", "cortex", transform=constrained)
        .connect("cortex", "arm")
        .finalize()
    )
    assert graph.connections["inhibitory->cortex"].transform is constrained


def test_errors_of_what_is_inside_name_the_place():
    graph = connected().finalize()
    state = graph.initialize_state(jr.split(KEY, 5))
    for x, message in (
        ({"image": jnp.zeros((5, 2))}, r"expected x\['image'\] \[B, 3\], got \[5, 2\]"),
        ({"imag": jnp.zeros((5, 3))}, "'image' is missing .did you mean 'imag'"),
        (
            {"image": jnp.zeros((5, 3)), "more": jnp.zeros((5, 1))},
            "'more' is for no input population",
        ),
        (jnp.zeros((5, 3)), "expected a mapping with the entries 'image'"),
    ):
        with pytest.raises(CompositionError, match=message):
            graph(state, x)
    broken = eqx.tree_at(
        lambda graph: graph.connections["cortex->arm"].transform,
        graph,
        Dense(4, 3, key=KEY),
    )
    with pytest.raises(
        CompositionError, match=r"PopulationGraph.cortex->arm to return"
    ):
        broken(state, {"image": jnp.zeros((5, 3))})
