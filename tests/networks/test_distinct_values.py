"""Values of a traced function, of which products are joined, against the function."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from nnx_ppo_fn.networks._distinct_values import DistinctValues


W, V, U = (
    jr.normal(key, (4, size))
    for key, size in zip(jr.split(jr.key(0), 3), (4, 3, 1), strict=True)
)
TRANSPOSED, HALF = W.T, V.astype(jnp.bfloat16)
X = jr.normal(jr.key(1), (5, 4))


def three_of_one(x):
    y = jnp.sin(x)
    return y @ W, y @ V, y @ U


def one_after_the_other(x):
    return x @ W @ V, x @ V


def a_kernel_and_its_transpose(x):
    return x @ W, x @ TRANSPOSED


def contracted_over_the_second_axis(x):
    dimensions = (((1,), (1,)), ((), ()))
    return [jax.lax.dot_general(x, one, dimensions) for one in (W, TRANSPOSED)]


def two_equal_ones(x):
    return x @ W, jnp.tanh(x) + x @ W


def of_other_types(x):
    dimensions = (((1,), (0,)), ((), ()))

    def product(weight):
        return jax.lax.dot_general(
            x, weight, dimensions, preferred_element_type=jnp.float32
        )

    return product(W), product(HALF), product(V), x.astype(HALF.dtype) @ HALF


def of_other_precision(x):
    return x @ W, jnp.matmul(x, V, precision="highest")


def of_other_ranks(x):
    return x @ W, x @ V[:, 0], x[None] @ V, W @ x.T


def with_what_is_no_constant(x):
    return x @ W, x @ jnp.tanh(x).T, x @ (V * x[0, 0])


@pytest.mark.parametrize(
    "function, products",
    [
        (three_of_one, 1),
        (one_after_the_other, 2),
        (a_kernel_and_its_transpose, 1),
        (contracted_over_the_second_axis, 1),
        (two_equal_ones, 1),
        (of_other_types, 3),
        (of_other_precision, 2),
        (of_other_ranks, 4),
        (with_what_is_no_constant, 3),
    ],
)
def test_products_with_constants_are_one(function, products):
    # Operations with constants alone are none of the function's.
    traced = jax.make_jaxpr(function)(X)
    values = DistinctValues(traced)

    def run(x):
        return [values.run([x])[name] for name in values.names(traced.jaxpr.outvars)]

    expected = jax.tree_util.tree_leaves(function(X))
    for one, other in zip(run(X), expected, strict=True):
        assert one.dtype == other.dtype
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)
    equations = jax.make_jaxpr(lambda x: values.run([x])[traced.jaxpr.outvars[0]])(
        X
    ).eqns
    assert sum(one.primitive.name == "dot_general" for one in equations) == products
