"""JAX's default generator, Threefry, without a loop.

On a CPU, JAX compiles Threefry as a loop over its rounds, four at a time, each time
more than a dozen tiny kernels. A link of a chain of keys is a block of two numbers for
each environment: starting the kernels takes longer than what they compute. Here the
rounds are written out, and a compiler makes one kernel of them. The bits are the same.

Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3", 2011.
"""

import functools as ft
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax.extend.random import define_prng_impl
from jaxtyping import Array, Key, UInt32


_NAME = "threefry2x32"
"""What JAX calls it."""

_PARITY = np.uint32(0x1BD11BDA)
_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))


@ft.partial(jax.jit, inline=True)
def _block(key: UInt32[Array, "2"], count: UInt32[Array, "2"]) -> UInt32[Array, "2"]:
    """20 rounds, with a part of the key added before them and after every fourth."""
    parts = (key[0], key[1], key[0] ^ key[1] ^ _PARITY)
    left, right = count[0] + parts[0], count[1] + parts[1]
    for four in range(5):
        for distance in _ROTATIONS[four % 2]:
            left = left + right
            turned = right << np.uint32(distance) | right >> np.uint32(32 - distance)
            right = left ^ turned
        left = left + parts[(four + 1) % 3]
        right = right + parts[(four + 2) % 3] + np.uint32(four + 1)
    return jnp.stack([left, right])


def _fold_in(key: UInt32[Array, "2"], data: Any) -> UInt32[Array, "2"]:
    return _block(key, jnp.stack([jnp.uint32(0), jnp.uint32(data)]))


# A generator for JAX, and not a function of the keys' bits: `check_module` follows keys
# by JAX's own operations.
_WRITTEN_OUT = define_prng_impl(
    key_shape=(2,),
    seed=lambda seed: jr.key_data(jr.key(seed, impl=_NAME)),
    split=lambda key, shape: jr.key_data(jr.split(_as_jax(key), shape)),
    random_bits=lambda key, width, shape: jr.bits(
        _as_jax(key), shape, jnp.dtype(f"uint{width}")
    ),
    fold_in=_fold_in,
    name="threefry2x32_written_out",
    tag="fry_out",
)


def _as_jax(key: UInt32[Array, "2"]) -> Key[Array, ""]:
    return jr.wrap_key_data(key, impl=_NAME)


def written_out(
    function: Callable[[Key[Array, "*batch"]], Key[Array, "*batch"]],
    keys: Key[Array, "*batch"],
) -> Key[Array, "*batch"]:
    """What `function` makes of keys by `jax.random.fold_in`, the same bits.

    **Arguments:**

    - `function`: takes and returns keys.
    - `keys`: of any generator; those of another one than Threefry are passed on.
    """
    if str(jr.key_impl(keys)) != _NAME:
        return function(keys)
    ours = function(jr.wrap_key_data(jr.key_data(keys), impl=_WRITTEN_OUT))
    return jr.wrap_key_data(jr.key_data(ours), impl=_NAME)
