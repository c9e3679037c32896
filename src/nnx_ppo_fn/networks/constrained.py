"""A dense layer whose weights have signs and gaps that training keeps."""

from collections.abc import Sequence
from typing import Any, final

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import jax.tree_util as jtu
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Bool, Float, Key
from numpy.typing import NDArray

from .._expect import is_real
from ._errors import expect_features
from ._trainable import known, NonTrainable
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
    connected with: LeCun-normal over the inputs that the mask leaves to an output. A
    `kernel_init` of one's own is told nothing of the mask, and its numbers are taken as
    they are. Signs are set in either case. The bias is 0.

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
        kernel_init: Initializer | None = None,
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
        - `kernel_init`, `bias_init`: `jax.nn.initializers`, called with a key, the
          shape of the whole kernel or bias, and a dtype. `None` is for LeCun-normal
          over the inputs that the mask leaves to an output; what another one gives is
          not rescaled.

        **Raises:**

        `ValueError` for sizes below 1, and for signs and masks of other shapes or other
        numbers; `TypeError` for a sign that is no number.
        """
        if in_features < 1 or out_features < 1:
            raise ValueError(
                "ConstrainedDense needs at least one feature in and out, got "
                f"in_features={in_features}, out_features={out_features}"
            )
        kernel_key, bias_key = jr.split(key)
        shape = (in_features, out_features)
        kept = None if mask is None else _as_mask(mask, shape)
        self.sign = None if sign is None else NonTrainable(as_signs(sign, in_features))
        self.mask = None if kept is None else NonTrainable(kept)
        if kernel_init is None:
            weights = jax.nn.initializers.lecun_normal()(kernel_key, shape, jnp.float32)
            self.weights = weights if kept is None else weights * _spread(kept)[None]
        else:
            self.weights = kernel_init(kernel_key, shape, jnp.float32)
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


def as_signs(sign: Any, size: int) -> Float[Array, " {size}"]:
    """Dale's law for `size` neurons, as 1 and -1.

    The numbers can be read wherever those in `sign` can, under `jax.jit` as well.

    **Arguments:**

    - `sign`: one number, or one for each neuron.
    - `size`: how many neurons.

    **Raises:**

    `ValueError` for numbers other than 1 and -1 or of another shape, and `TypeError`
    for what is no number.
    """
    traced = _is_traced(sign)
    array = jnp.asarray(sign, jnp.float32) if traced else known(sign, "sign")
    if array.shape not in ((), (size,)):
        raise ValueError(
            f"expected sign to be one number or {size}, one for each input, got an "
            f"array {list(array.shape)}"
        )
    if isinstance(array, np.ndarray):
        if not np.all(np.abs(array) == 1):
            raise ValueError(f"expected signs to be 1 or -1, got {sign}")
        with jax.ensure_compile_time_eval():
            return jnp.array(np.broadcast_to(array, (size,)))
    return jnp.broadcast_to(array, (size,))


def _as_mask(mask: Any, shape: tuple[int, int]) -> Bool[Array, "in out"]:
    wrong = "expected a mask of booleans, or of 0 and 1"
    try:
        array = jnp.asarray(mask) if _is_traced(mask) else np.asarray(mask)
    except (TypeError, ValueError):
        raise ValueError(f"{wrong}, got {mask!r}") from None
    if array.shape != shape:
        raise ValueError(
            f"expected a mask {list(shape)}, a row for each input, got an array "
            f"{list(array.shape)}"
        )
    known_kind = array.dtype == np.bool_ or is_real(array)
    if not known_kind or (
        isinstance(array, np.ndarray) and not np.all(np.isin(array, (0, 1)))
    ):
        raise ValueError(wrong)
    return jnp.array(array, jnp.bool_)


def _is_traced(given: Any) -> bool:
    return any(isinstance(leaf, Tracer) for leaf in jtu.tree_leaves(given))


def _spread(kept: Bool[Array, "in out"]) -> Float[Array, " out"]:
    """By how much the weights grow where outputs have fewer inputs than all."""
    inputs = jnp.sum(kept, axis=0, dtype=jnp.float32)
    return jnp.sqrt(len(kept) / jnp.maximum(inputs, 1.0))
