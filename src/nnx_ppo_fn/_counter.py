"""An exact count in 32-bit integers, for numbers that outgrow one of them."""

from typing import final

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Integer, UInt


_BITS = 32


@final
class Counter(eqx.Module):
    """A count below `2**64`, of any shape: `high * 2**32 + low`.

    JAX has no 64-bit integers unless it is told to; `float32` counts exactly to
    `2**24` and `int32` to `2**31`, which a training run passes in minutes or hours.
    """

    high: UInt[Array, "*shape"]
    low: UInt[Array, "*shape"]

    @staticmethod
    def zero(shape: tuple[int, ...] = ()) -> "Counter":
        """A count of 0.

        **Arguments:**

        - `shape`: `()` for one number.
        """
        return Counter(jnp.zeros(shape, jnp.uint32), jnp.zeros(shape, jnp.uint32))

    @staticmethod
    def of(number: int) -> "Counter":
        """A count that starts at `number`, a Python integer from 0 to `2**64 - 1`."""
        if not 0 <= number < 2 ** (2 * _BITS):
            raise ValueError(f"a Counter holds 0 to 2**64 - 1, got {number}")
        high, low = divmod(number, 2**_BITS)
        return Counter(jnp.asarray(high, jnp.uint32), jnp.asarray(low, jnp.uint32))

    def add(self, number: Integer[Array, "..."] | int) -> "Counter":
        """The count, increased.

        **Arguments:**

        - `number`: how much to add, from 0 to `2**32 - 1`: a Python integer, or an
          array that broadcasts to the counter's shape.

        **Raises:**

        `ValueError` for a Python integer out of range. An array is not looked at.
        """
        if isinstance(number, int) and not 0 <= number < 2**_BITS:
            raise ValueError(f"Counter.add takes 0 to 2**32 - 1, got {number}")
        addend = jnp.broadcast_to(jnp.asarray(number, jnp.uint32), self.low.shape)
        low = self.low + addend
        wrapped = (low < addend).astype(jnp.uint32)
        return Counter(self.high + wrapped, low)

    def as_float(self) -> Float[Array, "*shape"]:
        """The nearest `float32`, or a neighbour of it; works inside `jax.jit`."""
        high, low = self.high.astype(jnp.float32), self.low.astype(jnp.float32)
        return high * float(2**_BITS) + low

    def is_zero(self) -> Bool[Array, "*shape"]:
        """Where nothing has been counted yet."""
        return (self.high == 0) & (self.low == 0)

    def to_int(self) -> int:
        """The exact number, on the host. The counter must be a scalar."""
        return (int(self.high) << _BITS) + int(self.low)

    def __int__(self) -> int:
        """`int(counter)` is `counter.to_int()`."""
        return self.to_int()
