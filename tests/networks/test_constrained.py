import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
import pytest

from nnx_ppo_fn import ConstrainedDense, Dense, partition_trainable


def constrained(key, sizes=(6, 4), **options):
    signs = np.where(np.arange(sizes[0]) < 4, 1.0, -1.0)
    mask = np.arange(sizes[0] * sizes[1]).reshape(sizes) % 3 != 0
    layer = ConstrainedDense(*sizes, key=key, sign=signs, mask=mask, **options)
    return layer, signs, mask


def test_training_keeps_every_sign_and_every_gap(getkey):
    layer, signs, mask = constrained(getkey())
    x, y = jr.normal(getkey(), (16, 6)), jr.normal(getkey(), (16, 4))
    optimiser = optax.adamw(0.3, weight_decay=0.1)
    parameters, rest = partition_trainable(layer)

    def loss(parameters):
        layer = eqx.combine(parameters, rest)
        return jnp.mean(jnp.square(layer((), x).output - y))

    @jax.jit
    def train(parameters):
        def step(carry, _):
            parameters, state = carry
            gradients = jax.grad(loss)(parameters)
            updates, state = optimiser.update(gradients, state, parameters)
            parameters = optax.apply_updates(parameters, updates)
            return (parameters, state), eqx.combine(parameters, rest).kernel

        return jax.lax.scan(step, (parameters, optimiser.init(parameters)), length=60)

    with jax.numpy_dtype_promotion("standard"):
        (after, _), kernels = train(parameters)
    expected = np.broadcast_to(mask * signs[:, None], kernels.shape)
    np.testing.assert_array_equal(np.sign(kernels), expected)
    assert loss(after) < 0.7 * loss(parameters)
    # Weights have crossed 0, and were reflected.
    crossed = np.sign(after.weights) != np.sign(parameters.weights)
    assert np.any(crossed & mask)
    assert after.sign.value is None and after.mask.value is None


def test_the_kernel_is_that_of_a_dense_where_nothing_constrains_it(getkey):
    key = getkey()
    dense, free = Dense(3, 4, key=key), ConstrainedDense(3, 4, key=key)
    np.testing.assert_array_equal(free.kernel, dense.kernel)
    signed = ConstrainedDense(3, 4, key=key, sign=-1)
    np.testing.assert_array_equal(signed.kernel, -np.abs(dense.kernel))


def test_a_sparse_kernel_starts_as_that_of_a_layer_with_fewer_inputs():
    mask = np.arange(400)[:, None] % 4 == np.zeros(300)[None]
    layer = ConstrainedDense(400, 300, key=jr.key(0), mask=mask)
    # LeCun-normal over the 100 inputs of each output that are left.
    variance = np.mean(np.square(layer.kernel[::4]))
    np.testing.assert_allclose(variance, 1 / 100, rtol=0.03)


def test_an_output_without_inputs_is_its_bias():
    mask = np.array([[1, 0], [1, 0], [1, 0]])
    layer = ConstrainedDense(
        3, 2, key=jr.key(0), mask=mask, bias_init=jax.nn.initializers.ones
    )
    np.testing.assert_array_equal(layer((), jnp.ones((4, 3))).output[:, 1], 1)
    assert np.all(np.isfinite(layer.weights))


@pytest.mark.parametrize(
    "kernel_init",
    [
        jax.nn.initializers.constant(0.5),
        jax.nn.initializers.orthogonal(),
        jax.nn.initializers.lecun_normal(),
    ],
)
def test_an_initializer_that_is_given_is_taken_as_it_is(kernel_init, getkey):
    """A mask and signs change nothing else of its numbers."""
    key = getkey()
    layer, signs, mask = constrained(key, kernel_init=kernel_init)
    dense = Dense(6, 4, key=key, kernel_init=kernel_init)
    expected = np.where(mask, signs[:, None] * np.abs(dense.kernel), 0)
    np.testing.assert_array_equal(layer.kernel, expected)


def test_a_weight_that_starts_at_zero_is_not_stuck():
    layer = ConstrainedDense(
        2, 1, key=jr.key(0), sign=[1, -1], kernel_init=jax.nn.initializers.zeros
    )
    gradient = eqx.filter_grad(lambda layer: jnp.sum(layer.kernel))(layer)
    np.testing.assert_array_equal(gradient.weights[:, 0], [1.0, -1.0])


@pytest.mark.parametrize(
    "options, message",
    [
        ({"sign": 2}, "expected signs to be 1 or -1, got 2"),
        ({"sign": [1, -1]}, "one number or 3, one for each input"),
        ({"mask": np.ones((2, 3))}, r"expected a mask \[3, 2\]"),
        ({"sign": [1, np.nan, 1]}, "expected signs to be 1 or -1"),
        ({"mask": np.full((3, 2), 0.5)}, "a mask of booleans, or of 0 and 1"),
        ({"mask": np.full((3, 2), np.nan)}, "a mask of booleans, or of 0 and 1"),
        ({"mask": [["1", "0"]] * 3}, "a mask of booleans, or of 0 and 1"),
        ({"mask": [[1, 0], [1], [1, 1]]}, "a mask of booleans, or of 0 and 1"),
    ],
)
def test_what_is_no_constraint_is_refused(options, message):
    def make():
        return ConstrainedDense(3, 2, key=jr.key(0), **options).kernel

    for call in (make, jax.jit(make)):
        with pytest.raises(ValueError, match=message):
            call()


@pytest.mark.parametrize("sign", ["up", [1, "a", 1], True, [True, True, True]])
def test_a_sign_is_a_number(sign):
    with pytest.raises(TypeError, match="sign must be a number or an array of numbers"):
        ConstrainedDense(3, 2, key=jr.key(0), sign=sign)


def test_constraints_may_be_traced(getkey):
    _, signs, mask = constrained(getkey())
    key = getkey()

    @jax.jit
    def kernel(sign, mask):
        return ConstrainedDense(6, 4, key=key, sign=sign, mask=mask).kernel

    known = ConstrainedDense(6, 4, key=key, sign=signs, mask=mask).kernel
    traced = kernel(jnp.float32(signs), jnp.asarray(mask))
    np.testing.assert_allclose(traced, known, rtol=1e-6)
