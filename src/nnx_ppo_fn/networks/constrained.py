"""A dense layer whose weights have signs and gaps that training keeps."""

from collections.abc import Sequence
from typing import Any, final

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Bool, Float, Key
from numpy.typing import NDArray

from ._errors import expect_features
from ._trainable import NonTrainable
from .feedforward import Initializer
from .types import output, StatefulModuleOutput, StatelessModule


Numbers = int | float | Array | NDArray[Any] | Sequence[Any]


@final
class ConstrainedDense(StatelessModule[Float[Array, "B in"], Float[Array, "B out"]]):
    """`x @ kernel + bias` under Dale's law, with gaps in the kernel, or both.

    ```
    kernel = sign[:, None] * |weights|     where the mask is set, and 0 elsewhere
    ```

    or `weights` themselves where there is no `sign`. `weights` train without bounds,
    and the constraint is part of how they are read, so that no step of any optimiser
    breaks it. A weight that would cross 0 is reflected.

    The initial kernel is that of a `Dense` with as many inputs as each output is
    connected with: LeCun-normal over the inputs that the mask leaves to an output. Its
    signs are then set. The bias is 0.

    Dale's law makes a neuron excite all of its targets or inhibit all of them, which is
    so only where its activity is not negative: choose an activation such as
    `jax.nn.relu`.
    """

    weights: Float[Array, "in_features out_features"]
    bias: Float[Array, " out_features"] | None
    sign: NonTrainable[Float[Array, " in_features"]] | None
    mask: NonTrainable[Bool[Array, "in_features out_features"]] | None
    in_features: int = eqx.field(static=True)
    out_features: int = eqx.field(static=True)

    def __init__(
        self,
        in_features: int,
        out_features: int,
        *,
        key: Key[Array, ""],
        sign: Numbers | None = None,
        mask: Numbers | None = None,
        use_bias: bool = True,
        kernel_init: Initializer = jax.nn.initializers.lecun_normal(),
        bias_init: Initializer = jax.nn.initializers.zeros,
    ):
        """**Arguments:**

        - `in_features`, `out_features`: sizes of the input and the output.
        - `key`: for the initial weights.
        - `sign`: 1 for inputs that excite and -1 for those that inhibit: one number, or
          one for each input; `None` leaves signs free.
        - `mask`: which weights there are, `[in_features, out_features]`, as booleans or
          as 0 and 1; `None` for all.
        - `use_bias`: whether a bias is added.
        - `kernel_init`, `bias_init`: `jax.nn.initializers`, called with a key, a shape
          and a dtype.

        **Raises:**

        `ValueError` for sizes below 1, and for signs and masks of other shapes or other
        numbers.
        """
        if in_features < 1 or out_features < 1:
            raise ValueError(
                "ConstrainedDense needs at least one feature in and out, got "
                f"in_features={in_features}, out_features={out_features}"
            )
        kernel_key, bias_key = jr.split(key)
        weights = kernel_init(kernel_key, (in_features, out_features), jnp.float32)
        self.sign = None if sign is None else NonTrainable(_signs(sign, in_features))
        self.mask = None
        if mask is not None:
            kept = _mask(mask, (in_features, out_features))
            inputs = jnp.maximum(jnp.sum(kept, axis=0, dtype=jnp.float32), 1.0)
            weights = weights * jnp.sqrt(in_features / inputs)[None]
            self.mask = NonTrainable(kept)
        self.weights = weights
        self.bias = (
            bias_init(bias_key, (out_features,), jnp.float32) if use_bias else None
        )
        self.in_features = in_features
        self.out_features = out_features

    @property
    def kernel(self) -> Float[Array, "{self.in_features} {self.out_features}"]:
        """The weights under their constraints."""
        kernel = self.weights
        if self.sign is not None:
            # Unlike the absolute value, this has a slope at 0, so that nothing that
            # starts there is stuck.
            magnitude = jnp.where(kernel < 0, -kernel, kernel)
            kernel = self.sign.value.astype(kernel.dtype)[:, None] * magnitude
        if self.mask is not None:
            kernel = jnp.where(self.mask.value, kernel, jnp.zeros_like(kernel))
        return kernel

    def __call__(
        self,
        state: tuple[()],
        x: Float[Array, "B features"],
        rollout_extras: Any = None,
    ) -> StatefulModuleOutput[tuple[()], Float[Array, "B {self.out_features}"]]:
        """Applies the layer to `x`, `[B, in_features]`."""
        expect_features(x, self.in_features)
        y = x @ self.kernel
        return output(y if self.bias is None else y + self.bias[None], batch=len(x))


def _signs(sign: Numbers, size: int) -> Float[Array, " {size}"]:
    array = jnp.asarray(sign, jnp.float32)
    if array.shape not in ((), (size,)):
        raise ValueError(
            f"expected sign to be one number or {size}, one for each input, got an "
            f"array {list(array.shape)}"
        )
    if not isinstance(array, Tracer) and not np.all(np.abs(array) == 1):
        raise ValueError(f"expected signs to be 1 or -1, got {sign}")
    return jnp.broadcast_to(array, (size,))


def _mask(mask: Numbers, shape: tuple[int, int]) -> Bool[Array, "in out"]:
    array = jnp.asarray(mask)
    if array.shape != shape:
        raise ValueError(
            f"expected a mask {list(shape)}, a row for each input, got an array "
            f"{list(array.shape)}"
        )
    if not isinstance(array, Tracer) and not np.all(np.isin(array, (0, 1))):
        raise ValueError("expected a mask of booleans, or of 0 and 1")
    return array.astype(jnp.bool_)
