import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from nnx_ppo_fn.networks._errors import CompositionError
from nnx_ppo_fn.networks.feedforward import Dense, Stateless


def test_dense_is_an_affine_map_and_an_activation(getkey):
    layer = Dense(
        3,
        2,
        key=getkey(),
        activation=jnp.tanh,
        bias_init=jax.nn.initializers.constant(0.5),
    )
    x = jr.normal(getkey(), (4, 3))
    expected = np.tanh(np.float64(x) @ np.float64(layer.kernel) + 0.5)
    result = layer((), x)
    np.testing.assert_allclose(result.output, expected, rtol=1e-5)
    assert result.next_state == () and result.rollout_extras is None


def test_dense_without_bias_or_activation_is_linear(getkey):
    layer = Dense(3, 2, key=getkey(), use_bias=False)
    assert layer.bias is None and layer.activation is None
    np.testing.assert_array_equal(layer((), jnp.zeros((1, 3))).output, [[0, 0]])


def test_the_initial_kernel_is_that_of_flax(getkey):
    nnx = pytest.importorskip("flax.nnx")

    layer = Dense(200, 300, key=getkey())
    theirs = nnx.Linear(200, 300, rngs=nnx.Rngs(0))
    # LeCun-normal, cut at two standard deviations: variance 1 / 200.
    assert abs(np.std(layer.kernel) * 200**0.5 - 1) < 0.02
    assert abs(np.std(layer.kernel) / np.std(theirs.kernel[...]) - 1) < 0.02
    np.testing.assert_array_equal(layer.bias, theirs.bias[...])


@pytest.mark.parametrize("sizes", [(0, 2), (2, 0)])
def test_dense_needs_features(getkey, sizes):
    with pytest.raises(ValueError, match="at least one feature in and out, got"):
        Dense(*sizes, key=getkey())


def test_stateless_applies_a_function_to_a_tree():
    module = Stateless(lambda x: {"sum": x["a"] + x["b"]})
    result = module((), {"a": jnp.ones((2, 1)), "b": jnp.ones((2, 1))})
    np.testing.assert_array_equal(result.output["sum"], [[2], [2]])
    assert result.regularization_loss.shape == (2,)


def test_stateless_needs_a_function():
    with pytest.raises(CompositionError, match="expects a function, got ArrayImpl"):
        Stateless(jnp.ones(2))
