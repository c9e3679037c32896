"""Layers without memory."""

from collections.abc import Callable
from typing import Any, final

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Key

from ._errors import CompositionError, expect_features
from .types import output, StatefulModuleOutput, StatelessModule


Initializer = Callable[..., Array]


@final
class Dense(StatelessModule[Float[Array, "B in"], Float[Array, "B out"]]):
    """`activation(x @ kernel + bias)`.

    The initial kernel is LeCun-normal and the bias 0, as in flax.
    """

    kernel: Float[Array, "in_features out_features"]
    bias: Float[Array, " out_features"] | None
    activation: Callable[[Array], Array] | None
    in_features: int = eqx.field(static=True)
    out_features: int = eqx.field(static=True)

    def __init__(
        self,
        in_features: int,
        out_features: int,
        *,
        key: Key[Array, ""],
        activation: Callable[[Array], Array] | None = None,
        use_bias: bool = True,
        kernel_init: Initializer = jax.nn.initializers.lecun_normal(),
        bias_init: Initializer = jax.nn.initializers.zeros,
    ):
        """**Arguments:**

        - `in_features`, `out_features`: sizes of the input and the output.
        - `key`: for the initial weights.
        - `activation`: applied to the result; `None` for a linear layer.
        - `use_bias`: whether a bias is added.
        - `kernel_init`, `bias_init`: `jax.nn.initializers`, called with a key, a
          shape and a dtype.
        """
        if in_features < 1 or out_features < 1:
            raise ValueError(
                "Dense needs at least one feature in and out, got "
                f"in_features={in_features}, out_features={out_features}"
            )
        kernel_key, bias_key = jr.split(key)
        self.kernel = kernel_init(kernel_key, (in_features, out_features), jnp.float32)
        self.bias = (
            bias_init(bias_key, (out_features,), jnp.float32) if use_bias else None
        )
        self.activation = activation
        self.in_features = in_features
        self.out_features = out_features

    def __call__(
        self,
        state: tuple[()],
        x: Float[Array, "B features"],
        rollout_extras: Any = None,
    ) -> StatefulModuleOutput[tuple[()], Float[Array, "B {self.out_features}"]]:
        """Applies the layer to `x`, `[B, in_features]`."""
        expect_features(x, self.in_features)
        y = x @ self.kernel
        if self.bias is not None:
            y = y + self.bias[None]
        return output(
            y if self.activation is None else self.activation(y), batch=len(x)
        )


@final
class Stateless(StatelessModule[Any, Any]):
    """Any function on arrays `[B, ...]` as a module.

    The function must treat each row by itself: in a replay it sees `T * B` rows.
    Give a named function rather than a fresh `lambda`: functions compare by identity,
    and a new one compiles anew.

    **Example:**

    ```python
    Stateless(jnp.tanh)
    ```
    """

    fn: Callable[[Any], Any]

    def __init__(self, fn: Any):
        """**Arguments:**

        - `fn`: takes and returns trees with leaves `[B, ...]`.
        """
        if not callable(fn):
            raise CompositionError(
                f"Stateless expects a function, got {type(fn).__name__}"
            )
        self.fn = fn

    def __call__(
        self, state: tuple[()], x: Any, rollout_extras: Any = None
    ) -> StatefulModuleOutput[tuple[()], Any]:
        """Applies the function to `x`."""
        batch = len(jax.tree.leaves(x)[0])
        return output(self.fn(x), batch=batch)
