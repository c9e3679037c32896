import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from helpers import tree_equal
from networks.graph.started import builder, connected, KEY
from nnx_ppo_fn import (
    CompositionError,
    ConstrainedDense,
    Dense,
    PopulationGraphBuilder,
    Sequential,
)


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


def test_integers_of_numpy_are_integers():
    """Among those that are static: a graph of them is the same, and compiles once."""
    graphs = [
        connected()
        .add_population("a", integer(3))
        .connect("a", "arm", delay=integer(2), reciprocal=True)
        .finalize()
        for integer in (int, np.int64, np.uint8)
    ]
    assert type(graphs[1].populations["a"].size) is int
    assert type(graphs[1].connections["arm->a"].delay) is int
    assert eqx.tree_equal(*graphs)


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


def signed(sign, transform):
    """A population of 3 with a sign, and its connection with one of 4."""
    return (
        builder()
        .add_population("inhibitory", 3, sign=sign)
        .connect("inhibitory", "cortex", transform=transform)
    )


@pytest.mark.parametrize("sign", [-1, [1, -1, 1]])
def test_a_transform_keeps_the_sign_of_its_population(sign):
    kept = ConstrainedDense(3, 4, key=KEY, sign=sign, mask=np.eye(3, 4))
    for transform in (kept, [kept], [[kept], jnp.tanh], Sequential([kept])):
        graph = signed(sign, transform).connect("cortex", "arm").finalize()
        placed = graph.connections["inhibitory->cortex"].transform
        while isinstance(placed, Sequential):
            placed = placed[0]
        assert placed is kept
    other = ConstrainedDense(3, 4, key=KEY, sign=1)
    per_neuron = ConstrainedDense(3, 4, key=KEY, sign=[1, -1, -1])
    square = ConstrainedDense(4, 4, key=KEY, sign=-1)
    wanted = "the sign -1" if sign == -1 else r"the signs \[ 1, -1,  1\]"
    for transform, came in (
        (other, "ConstrainedDense with the sign 1"),
        (per_neuron, r"ConstrainedDense with the signs \[ 1, -1, -1\]"),
        (ConstrainedDense(3, 4, key=KEY), "ConstrainedDense with no sign"),
        (Dense(3, 4, key=KEY), "Dense"),
        ([jnp.tanh, kept], "Stateless"),
        ([[Dense(3, 4, key=KEY)], square], "Dense"),
        ([other, square], "ConstrainedDense with the sign 1"),
    ):
        with pytest.raises(
            CompositionError,
            match=r"in PopulationGraph.inhibitory->cortex \(\w+\): expected a "
            rf"ConstrainedDense with {wanted}, .* got {came}$",
        ):
            signed(sign, transform)


def test_signs_are_compared_inside_of_compiled_code_too():
    def build(key, sign):
        transform = ConstrainedDense(3, 4, key=key, sign=sign)
        return signed(-1, transform).connect("cortex", "arm").finalize()

    eqx.filter_eval_shape(build, KEY, -1)
    with pytest.raises(CompositionError, match="the sign -1, .* with the sign 1"):
        eqx.filter_eval_shape(build, KEY, 1)
    # What is being traced cannot be compared.
    eqx.filter_eval_shape(build, KEY, jnp.ones(3))


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
