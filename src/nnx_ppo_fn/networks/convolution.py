"""A convolutional encoder for images."""

import operator
from collections.abc import Sequence
from typing import Any, cast, final

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, Key, Shaped

from .._expect import as_count, expect_flags
from .._keys import expect_key
from .._tree import as_float, shape_text
from ._errors import CompositionError
from .containers import Sequential
from .factories import Activation, make_mlp_layers
from .feedforward import Initializer, Stateless
from .lifting import Lift
from .types import AnyModule, output, StatefulModuleOutput, StatelessModule
from .utils import Flattener


@final
class Pixels(
    StatelessModule[Shaped[Array, "B ..."], Float[Array, "B channels height width"]]
):
    """Images as `equinox.nn.Conv2d` takes them: floats, channels first.

    `uint8` is scaled from 0 ... 255 to 0 ... 1 in `float32`; other integers and
    booleans become `float32` as they are, and floats stay what they are.
    """

    height: int = eqx.field(static=True)
    width: int = eqx.field(static=True)
    channels: int = eqx.field(static=True)
    channels_last: bool = eqx.field(static=True, default=True)

    def __call__(
        self,
        state: tuple[()],
        x: Shaped[Array, "B ..."],
        rollout_extras: Any = None,
    ) -> StatefulModuleOutput[
        tuple[()], Float[Array, "B {self.channels} {self.height} {self.width}"]
    ]:
        """`[B, channels, height, width]`, from `[B, height, width, channels]` or the
        same.
        """
        sides = (self.height, self.width)
        shape = (
            (*sides, self.channels) if self.channels_last else (self.channels, *sides)
        )
        if getattr(x, "shape", ())[1:] != shape:
            raise CompositionError(
                f"expected images x [B, {', '.join(map(str, shape))}], got "
                f"{shape_text(x)}"
            )
        if self.channels_last:
            x = jnp.moveaxis(x, -1, 1)
        if x.dtype == jnp.uint8:
            x = as_float(x) / 255
        return output(as_float(x), batch=len(x))


@final
class Convolution(eqx.Module):
    """`equinox.nn.Conv2d` in the precision of its kernel, whatever the image's."""

    layer: eqx.nn.Conv2d

    def __call__(self, x: Array) -> Float[Array, "channels height width"]:
        """`[out_channels, height, width]` from `[in_channels, height, width]`."""
        return self.layer(x.astype(self.layer.weight.dtype))


def make_conv_encoder(
    image_shape: Sequence[int],
    features: int,
    *,
    key: Key[Array, ""],
    channels: Sequence[int] = (16, 32),
    kernel_sizes: int | Sequence[int] = 3,
    strides: int | Sequence[int] = 1,
    activation: Activation | str = "relu",
    channels_last: bool = True,
    kernel_init: Initializer = jax.nn.initializers.lecun_normal(),
) -> Sequential[Shaped[Array, "B ..."], Float[Array, "B features"]]:
    """Convolutions, then a dense layer: images in, `[B, features]` out.

    ```
    Sequential([
        Pixels(...), Lift(Convolution(...)), Stateless(activation), ...,
        Flattener(), Dense(...),
    ])
    ```

    Convolutions are not padded, so each makes the image smaller: a side of `n` becomes
    `(n - kernel_size) // stride + 1`. Images of `uint8` are scaled to 0 ... 1; other
    integers and booleans become `float32` as they are. From the first convolution on
    numbers have the precision of its kernel. A `Convolution` holds an
    `equinox.nn.Conv2d`; initial kernels are LeCun-normal and biases 0, as in flax.

    **Arguments:**

    - `image_shape`: `(height, width, channels)`, whatever `channels_last` is.
    - `features`: size of the output.
    - `key`: for the initial weights.
    - `channels`: of the output of each convolution.
    - `kernel_sizes`, `strides`: of each convolution, or one number for all.
    - `activation`: after every layer, the last one included; as in `make_mlp_layers`.
    - `channels_last`: whether images come as `[B, height, width, channels]` rather
      than `[B, channels, height, width]`.
    - `kernel_init`: of `jax.nn.initializers`, called with a key, a shape `(height,
      width, in, out)` or `(in, out)`, and a dtype.

    **Returns:**

    A module to stand at the beginning of a network.

    **Raises:**

    `ValueError` where sizes are missing, or no integers of at least 1, and where an
    image becomes smaller than a kernel.
    """
    expect_key(key)
    expect_flags(channels_last=channels_last)
    features = as_count(features, name="features")
    image_sizes, out_channels = _sizes(image_shape), _sizes(channels)
    if len(image_sizes) != 3:
        raise ValueError(
            "expected image_shape (height, width, channels), each at least 1, got "
            f"{image_shape}"
        )
    if not out_channels:
        raise ValueError(
            "expected channels of one convolution or more, each at least 1, got "
            f"{channels}"
        )
    height, width, image_channels = image_sizes
    kernels = _one_each("kernel_sizes", kernel_sizes, len(out_channels))
    steps = _one_each("strides", strides, len(out_channels))
    out_height, out_width = _sides_after((height, width), kernels, steps)

    dense_key, *conv_keys = jr.split(key, 1 + len(out_channels))
    (dense,) = make_mlp_layers(
        [out_height * out_width * out_channels[-1], features],
        key=dense_key,
        activation=activation,
        kernel_init=kernel_init,
    )
    layers: list[AnyModule] = [Pixels(height, width, image_channels, channels_last)]
    in_channels = (image_channels, *out_channels[:-1])
    for sizes in zip(in_channels, out_channels, kernels, steps, conv_keys, strict=True):
        conv = _convolution(*sizes, kernel_init)
        layers += [Lift(conv), Stateless(dense.activation)]
    return Sequential([*layers, Flattener(), dense])


def _sizes(value: Any) -> tuple[int, ...]:
    """Integers of at least 1; none if `value` is anything else than several of them."""
    try:
        sizes = tuple(operator.index(size) for size in value)
    except TypeError:
        return ()
    return sizes if all(size > 0 for size in sizes) else ()


def _one_each(name: str, value: Any, count: int) -> tuple[int, ...]:
    given = _sizes((value,) * count if np.ndim(value) == 0 else value)
    if len(given) != count:
        raise ValueError(
            f"expected {name} to be one number, or one for each of the {count} "
            f"channels, each at least 1, got {value}"
        )
    return given


def _sides_after(
    sides: tuple[int, int], kernels: tuple[int, ...], strides: tuple[int, ...]
) -> tuple[int, int]:
    """The image after all convolutions, refused where it vanishes."""
    sizes = [f"{sides[0]} x {sides[1]}"]
    for index, (kernel, stride) in enumerate(zip(kernels, strides, strict=True)):
        if min(sides) < kernel:
            raise ValueError(
                f"the image becomes too small: {' -> '.join(sizes)}, and convolution "
                f"{index} has kernels of {kernel} x {kernel}. Take smaller kernels or "
                "strides, or fewer convolutions"
            )
        height, width = ((side - kernel) // stride + 1 for side in sides)
        sides = height, width
        sizes.append(f"{height} x {width}")
    return sides


def _convolution(
    in_channels: int,
    out_channels: int,
    kernel_size: int,
    stride: int,
    key: Key[Array, ""],
    kernel_init: Initializer,
) -> Convolution:
    conv = eqx.nn.Conv2d(in_channels, out_channels, kernel_size, stride, key=key)
    # Initialisers take the input's axis to be the last but one, Equinox has it second.
    kernel = kernel_init(
        key, (kernel_size, kernel_size, in_channels, out_channels), jnp.float32
    )
    bias = jnp.zeros_like(cast(Array, conv.bias), kernel.dtype)
    return Convolution(
        eqx.tree_at(
            lambda layer: (layer.weight, layer.bias),
            conv,
            (jnp.transpose(kernel, (3, 2, 0, 1)), bias),
        )
    )
