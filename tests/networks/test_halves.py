"""Halves and their gradients, against `jnp.split`."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from nnx_ppo_fn.networks._halves import in_halves


X = jr.normal(jr.key(0), (4, 6))


def in_halves_by_jax(x):
    return tuple(jnp.split(x, 2, axis=-1))


def of_both(halves):
    return jnp.sum(jnp.sin(halves[0]) * halves[1] ** 2)


def of_the_first(halves):
    return jnp.sum(halves[0] ** 3)


def of_the_second(halves):
    return jnp.sum(halves[1] ** 3)


TRANSFORMATIONS = {
    "the function": lambda function: function,
    "jit": jax.jit,
    "grad": jax.grad,
    "jacfwd": jax.jacfwd,
    "grad of jit": lambda function: jax.grad(jax.jit(function)),
    "hessian": jax.hessian,
    "jacfwd of jacfwd": lambda function: jax.jacfwd(jax.jacfwd(function)),
    "jacrev of jacfwd": lambda function: jax.jacrev(jax.jacfwd(function)),
    "vmap of grad": lambda function: jax.vmap(jax.grad(function)),
    "vmap over another axis": lambda function: jax.vmap(
        lambda x: jax.grad(function)(jnp.stack([x, x], axis=-1)), in_axes=1
    ),
    "checkpoint": lambda function: jax.grad(jax.checkpoint(function)),
    "linearize": lambda function: lambda x: jax.linearize(function, x)[1](x),
}


@pytest.mark.parametrize("name", TRANSFORMATIONS)
@pytest.mark.parametrize("function", [of_both, of_the_first, of_the_second])
def test_as_jax_splits(function, name):
    ours, theirs = (
        TRANSFORMATIONS[name](lambda x, split=split: function(split(x)))(X)
        for split in (in_halves, in_halves_by_jax)
    )
    np.testing.assert_allclose(ours, theirs, rtol=1e-6)


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
def test_halves_have_the_dtype_of_the_whole(dtype):
    x = jnp.arange(12).reshape(2, 6).astype(dtype)
    for ours, theirs in zip(in_halves(x), in_halves_by_jax(x), strict=True):
        assert ours.dtype == dtype
        np.testing.assert_array_equal(ours, theirs)


def test_the_gradient_concatenates_nothing():
    traced = jax.make_jaxpr(jax.grad(lambda x: of_both(in_halves(x))))(X)
    names = {equation.primitive.name for equation in traced.eqns}
    assert "dynamic_update_slice" in names and "concatenate" not in names


def test_rows_stay_on_their_devices():
    kinds = (jax.sharding.AxisType.Explicit,)
    mesh = jax.make_mesh((1,), ("rows",), axis_types=kinds)
    with jax.set_mesh(mesh):
        x = jax.device_put(X, jax.sharding.PartitionSpec("rows"))
        gradient = jax.jit(jax.grad(lambda x: of_both(in_halves(x))))(x)
    assert gradient.sharding.spec[0] == "rows"
    expected = jax.grad(lambda x: of_both(in_halves_by_jax(x)))(X)
    np.testing.assert_allclose(gradient, expected, rtol=1e-6)
