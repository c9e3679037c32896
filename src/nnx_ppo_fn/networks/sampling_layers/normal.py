"""Normal distributions: as they are, clipped, or squashed into (-1, 1)."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, final, TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from numpy.typing import NDArray

from ..._custom_types import Keys
from ..._keys import normals
from ..._tree import shape_text
from .._errors import CompositionError
from .._trainable import (
    Coefficient,
    coefficient,
    contents,
    converted,
    known,
    NonTrainable,
    number,
)
from ._parameters import as_numbers, expect_scales, halves
from .action_sampler import ActionDistribution, ActionSampler, as_entropy_weight


Row: TypeAlias = Sequence[float | int] | NDArray[Any] | Array
"""One number for each component of an action."""

Bound: TypeAlias = int | float | Row | NonTrainable[Array] | None

_as_min_std = converted("min_std")
_as_std_scale = converted("std_scale")


def _as_log_std(
    value: Row | NonTrainable[Any] | None,
) -> Array | NonTrainable[Array] | None:
    """Converts one number per component to an array, `float32`, that trains or not.

    **Raises:**

    `ValueError` for anything else.
    """
    if value is None:
        return None
    inside = contents(value)
    try:
        array = as_numbers(inside)
        fits = np.ndim(array) == 1 and np.size(array) > 0
    except (TypeError, ValueError):
        array, fits = None, False
    if not fits:
        raise ValueError(
            "expected log_std to be one number per component of the action, such as "
            f"jnp.zeros(2), got {inside}"
        )
    array = jnp.asarray(array, jnp.float32)
    return NonTrainable(array) if isinstance(value, NonTrainable) else array


def _as_bounds(
    bounds: tuple[Bound, Bound] | Row | None,
) -> tuple[Coefficient, Coefficient] | None:
    """Converts a pair of numbers or rows, of which one may be open.

    **Raises:**

    `ValueError` for anything else, and for bounds that no number is between.
    """
    if bounds is None:
        return None
    try:
        low, high = bounds
        pair = _as_bound(low, -math.inf), _as_bound(high, math.inf)
        fits = all(np.ndim(contents(one)) < 2 for one in pair)
        sides = [known(one) for one in pair]
        if all(side.size for side in sides):
            fits = fits and bool(np.less(*sides).all())
    except (TypeError, ValueError):
        fits, pair = False, None
    if not fits:
        raise ValueError(
            "expected bounds (low, high) with low below high, each a number, one "
            f"number per component of the action, or None, got {bounds}"
        )
    return pair


def _as_bound(value: Any, open_side: float) -> Coefficient:
    if isinstance(value, NonTrainable):
        return value
    return open_side if value is None else coefficient(as_numbers(value))


@final
class Normal(ActionDistribution):
    """Independent normal distributions, `[B, n]`.

    With bounds, the action is clipped to them and the likelihood stays that of the raw
    action. Clipping is then a part of the environment: the likelihood has a gradient
    everywhere, whereas that of the clipped action would be a probability at the bounds
    and a density between them.

    **Arguments:**

    - `mean`, `std`: `[B, n]`, `float32`.
    - `low`, `high`: bounds, numbers or `[n]`; infinite ones bound nothing.
    """

    mean: Float[Array, "B n"]
    std: Float[Array, "B n"]
    low: Float[Array, "..."] | float = -math.inf
    high: Float[Array, "..."] | float = math.inf

    def sample(self, keys: Keys) -> Float[Array, "B n"]:
        """Reparameterised: `mean + std * noise`."""
        return self.mean + self.std * normals(keys, self.mean.shape[-1])

    def mode(self) -> Float[Array, "B n"]:
        """The mean."""
        return self.mean

    def action(self, raw: Float[Array, "B n"]) -> Float[Array, "B n"]:
        """The raw action, inside the bounds."""
        low, high = (
            jnp.broadcast_to(jnp.asarray(bound, raw.dtype), raw.shape)
            for bound in (self.low, self.high)
        )
        return jnp.clip(raw, low, high)

    def log_likelihood(self, raw: Float[Array, "B n"]) -> Float[Array, " B"]:
        """That of the raw action."""
        return jnp.sum(_normal_log_density(raw, self.mean, self.std), axis=-1)

    def entropy(self, sample: Callable[[], Any]) -> Float[Array, " B"]:
        """The sum of `log std + log(2 pi e) / 2`."""
        return jnp.sum(jnp.log(self.std) + 0.5 * math.log(2 * math.pi * math.e), -1)

    def metrics(self) -> Mapping[str, Float[Array, " B"]]:
        """Mean and standard deviation, over the action's components."""
        return _moments(self.mean, self.std)


@final
class NormalTanh(ActionDistribution):
    """Independent normal distributions squashed by `tanh` into (-1, 1).

    **Arguments:**

    - `mean`, `std`: of the raw actions, before `tanh`; `[B, n]`, `float32`.
    """

    mean: Float[Array, "B n"]
    std: Float[Array, "B n"]

    def sample(self, keys: Keys) -> Float[Array, "B n"]:
        """Reparameterised: `mean + std * noise`."""
        return self.mean + self.std * normals(keys, self.mean.shape[-1])

    def mode(self) -> Float[Array, "B n"]:
        """The mean of the raw actions, which `tanh` makes the median of the actions."""
        return self.mean

    def action(self, raw: Float[Array, "B n"]) -> Float[Array, "B n"]:
        """The raw action, squashed."""
        return jnp.tanh(raw)

    def log_likelihood(self, raw: Float[Array, "B n"]) -> Float[Array, " B"]:
        """That of the squashed action."""
        return tanh_normal_log_density(raw, self.mean, self.std)

    def entropy(self, sample: Callable[[], Any]) -> Float[Array, " B"]:
        """An unbiased estimate from one reparameterised sample."""
        return -self.log_likelihood(sample())

    def metrics(self) -> Mapping[str, Float[Array, " B"]]:
        """Mean and standard deviation before `tanh`, over the action's components."""
        return _moments(self.mean, self.std)


def tanh_normal_log_density(
    raw_action: Float[Array, "B actions"],
    mean: Float[Array, "B actions"],
    std: Float[Array, "B actions"],
) -> Float[Array, " B"]:
    """The log-density of `tanh(raw_action)` for `raw_action ~ N(mean, std)`.

    **Arguments:**

    - `raw_action`: the action before `tanh`, `[B, n]`.
    - `mean`, `std`: of the normal distribution, `[B, n]`.

    **Returns:**

    Summed over the action's components, `[B]`.
    """
    log_slope = 2 * (math.log(2) - raw_action - jax.nn.softplus(-2 * raw_action))
    return jnp.sum(_normal_log_density(raw_action, mean, std) - log_slope, axis=-1)


@final
class NormalTanhSampler(ActionSampler[Float[Array, "B parameters"]]):
    """A normal distribution squashed by `tanh` into actions in (-1, 1).

    The input holds means, then raw standard deviations: `std = (softplus(raw) +
    min_std) * std_scale`. With `log_std`, an array `[n]` that trains, it holds means
    alone, and the standard deviations do not depend on it: `std = (exp(log_std) +
    min_std) * std_scale`. A `log_std` in `NonTrainable` stays as it is.

    The log-likelihood is that of the squashed action, with the logarithm of
    `1 - tanh(z)**2` written as `2 * (log 2 - z - softplus(-2 z))`, which neither
    overflows nor vanishes (Haarnoja et al. 2018, arXiv 1801.01290, appendix C).

    The regularisation loss is `entropy_weight` times the log-likelihood of a
    reparameterised sample: an unbiased estimate of the negative entropy. In the
    rollout that sample is the action; in the replay it is the same noise under the
    new weights. Where `inference` is set a new action is the median, `tanh(mean)`.
    """

    entropy_weight: Coefficient = eqx.field(converter=as_entropy_weight)
    min_std: Coefficient = eqx.field(default=1e-3, converter=_as_min_std)
    std_scale: Coefficient = eqx.field(default=1.0, converter=_as_std_scale)
    log_std: Array | NonTrainable[Array] | None = eqx.field(
        default=None, kw_only=True, converter=_as_log_std
    )
    inference: bool = eqx.field(default=False, kw_only=True)

    def __check_init__(self):
        """Refuses standard deviations that could be 0, as softplus alone can."""
        expect_scales(min_std=self.min_std, std_scale=self.std_scale)

    def distribution(self, x: Float[Array, "B parameters"]) -> NormalTanh:
        """From `[B, 2 * n]`, or from `[B, n]` with `log_std`."""
        return NormalTanh(*_mean_and_std(x, self.log_std, self.min_std, self.std_scale))


@final
class NormalSampler(ActionSampler[Float[Array, "B parameters"]]):
    """A normal distribution of actions without bounds, or clipped to them.

    Input and standard deviations are those of `NormalTanhSampler`, `log_std` included.
    With `bounds`, a pair `(low, high)` of numbers or of one number per component, an
    action is `clip(raw, low, high)`; `None` leaves a side open. Its log-likelihood is
    that of the raw action: to PPO, clipping is a part of the environment. So the
    gradient goes on where an action is clipped, and the density stays a density.

    The regularisation loss is minus `entropy_weight` times the entropy of the raw
    action, in closed form. Where `inference` is set a new action is the mean, clipped.
    """

    entropy_weight: Coefficient = eqx.field(converter=as_entropy_weight)
    min_std: Coefficient = eqx.field(default=1e-3, converter=_as_min_std)
    std_scale: Coefficient = eqx.field(default=1.0, converter=_as_std_scale)
    bounds: tuple[Coefficient, Coefficient] | None = eqx.field(
        default=None, kw_only=True, converter=_as_bounds
    )
    log_std: Array | NonTrainable[Array] | None = eqx.field(
        default=None, kw_only=True, converter=_as_log_std
    )
    inference: bool = eqx.field(default=False, kw_only=True)

    def __check_init__(self):
        """Refuses standard deviations that could be 0."""
        expect_scales(min_std=self.min_std, std_scale=self.std_scale)

    def distribution(self, x: Float[Array, "B parameters"]) -> Normal:
        """From `[B, 2 * n]`, or from `[B, n]` with `log_std`."""
        mean, std = _mean_and_std(x, self.log_std, self.min_std, self.std_scale)
        if self.bounds is None:
            return Normal(mean, std)
        low, high = map(contents, self.bounds)
        for bound in (low, high):
            if np.shape(bound) not in ((), mean.shape[1:]):
                raise CompositionError(
                    f"expected bounds that are numbers or [{mean.shape[-1]}], one per "
                    f"component of the action, got {list(np.shape(bound))}"
                )
        return Normal(mean, std, low, high)


def _normal_log_density(
    raw: Float[Array, "B n"], mean: Float[Array, "B n"], std: Float[Array, "B n"]
) -> Float[Array, "B n"]:
    return (
        -0.5 * jnp.square((raw - mean) / std)
        - jnp.log(std)
        - 0.5 * math.log(2 * math.pi)
    )


def _moments(
    mean: Float[Array, "B n"], std: Float[Array, "B n"]
) -> Mapping[str, Float[Array, " B"]]:
    return {"mu": jnp.mean(mean, axis=-1), "sigma": jnp.mean(std, axis=-1)}


def _mean_and_std(
    x: Any,
    log_std: Any,
    min_std: Coefficient,
    std_scale: Coefficient,
) -> tuple[Float[Array, "B n"], Float[Array, "B n"]]:
    """What the parameters `x` say, in `float32`."""
    if log_std is None:
        mean, raw = halves(x, "means, then raw standard deviations")
        spread = jax.nn.softplus(raw)
    else:
        value = contents(log_std).astype(jnp.float32)
        shape = getattr(x, "shape", ())
        if len(shape) != 2 or shape[1:] != value.shape:
            raise CompositionError(
                f"expected x [B, {len(value)}] (means alone, since the sampler has "
                f"a log_std), got {shape_text(x)}"
            )
        mean = jnp.asarray(x, jnp.float32)
        spread = jnp.broadcast_to(jnp.exp(value), mean.shape)
    return mean, (spread + number(min_std, "min_std")) * number(std_scale, "std_scale")
