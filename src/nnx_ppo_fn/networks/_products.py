"""Products with weights, in the weights' precision, and rows of carries."""

import jax.numpy as jnp
from jaxtyping import Array, Float


def product(
    x: Float[Array, "B in"], kernel: Float[Array, "in out"]
) -> Float[Array, "B out"]:
    """`x @ kernel` in the kernel's precision, given in `float32`."""
    return (x.astype(kernel.dtype) @ kernel).astype(jnp.float32)


def affine(
    x: Float[Array, "B in"],
    kernel: Float[Array, "in out"],
    bias: Float[Array, " out"],
) -> Float[Array, "B out"]:
    """`x @ kernel + bias`, as `product`."""
    return product(x, kernel) + bias[None].astype(jnp.float32)


def zero_rows(batch: int, size: int) -> Float[Array, "B size"]:
    """A carry of zeros."""
    return jnp.zeros((batch, size), jnp.float32)


def rows(vector: Float[Array, " size"], batch: int) -> Float[Array, "B size"]:
    """A carry that is the same for every environment."""
    return jnp.broadcast_to(vector[None].astype(jnp.float32), (batch, len(vector)))
