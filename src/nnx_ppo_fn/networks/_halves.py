"""Splits features in two.

The gradient of `jnp.split` is a concatenation. On a CPU, XLA computes one number after
the other of what it concatenates, and that is the whole gradient of a distribution's
parameters, several times as long as it takes for each half by itself. Here the halves
are written into one array.
"""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir
from jaxtyping import Array, Float


def in_halves(
    x: Float[Array, "... two_n"],
) -> tuple[Float[Array, "... n"], Float[Array, "... n"]]:
    """The first and the second half of the last axis, of an even size."""
    first, second = _halves.bind(x)
    return first, second


def _split(x: Array) -> list[Array]:
    size = x.shape[-1] // 2
    return list(jax.lax.split(x, (size, size), axis=x.ndim - 1))


def _kinds(x: Any) -> list[Any]:
    return [x.update(shape=(*x.shape[:-1], x.shape[-1] // 2))] * 2


def _written(cotangents: Sequence[Any], x: Any) -> list[Array]:
    # Zeros of the same type, which tells on which devices the rows are.
    joined = ad.instantiate_zeros(ad.Zero(x.aval))
    starts = (0, x.aval.shape[-1] // 2)
    for start, cotangent in zip(starts, cotangents, strict=True):
        if not isinstance(cotangent, ad.Zero):
            joined = jax.lax.dynamic_update_slice_in_dim(joined, cotangent, start, -1)
    return [joined]


def _of_batch(arguments: Sequence[Any], axes: Sequence[Any]) -> tuple[Any, Any]:
    (x,), (axis,) = arguments, axes
    return _halves.bind(jnp.moveaxis(x, axis, 0)), (0, 0)


_halves = Primitive("halves")
_halves.multiple_results = True
_halves.def_impl(_split)
_halves.def_abstract_eval(_kinds)
ad.deflinear2(_halves, _written)
batching.primitive_batchers[_halves] = _of_batch
mlir.register_lowering(_halves, mlir.lower_fun(_split, multiple_results=True))
