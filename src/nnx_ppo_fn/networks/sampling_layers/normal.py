"""Normal distributions: as they are, clipped, or squashed into (-1, 1)."""

import math
from collections.abc import Callable, Mapping
from typing import Any, final

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from ..._custom_types import Keys
from ..._keys import normals
from .._errors import CompositionError
from .._trainable import (
    Coefficient,
    coefficient,
    expect_positive,
    NonTrainable,
    number,
)
from .action_sampler import ActionDistribution, ActionSampler


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

    entropy_weight: Coefficient = eqx.field(converter=coefficient)
    min_std: Coefficient = eqx.field(default=1e-3, converter=coefficient)
    std_scale: Coefficient = eqx.field(default=1.0, converter=coefficient)
    log_std: Array | NonTrainable[Array] | None = eqx.field(default=None, kw_only=True)
    inference: bool = eqx.field(default=False, kw_only=True)

    def __check_init__(self):
        """Refuses standard deviations that could be 0, as softplus alone can."""
        expect_positive(min_std=self.min_std, std_scale=self.std_scale)
        _expect_log_std(self.log_std)

    def distribution(self, x: Float[Array, "B parameters"]) -> NormalTanh:
        """From `[B, 2 * n]`, or from `[B, n]` with `log_std`."""
        return NormalTanh(*_mean_and_std(x, self.log_std, self.min_std, self.std_scale))


def _bounds(bounds: Any) -> tuple[Coefficient, Coefficient] | None:
    """Converts a pair of numbers, sequences or arrays; arrays are not looked at."""
    if bounds is None:
        return None
    low, high = bounds
    concrete = not any(isinstance(one, Array | NonTrainable) for one in (low, high))
    if concrete and not np.less(low, high).all():
        raise ValueError(
            f"expected bounds (low, high) with low below high, got {bounds}"
        )
    return _bound(low), _bound(high)


def _bound(value: Any) -> Coefficient:
    kept = isinstance(value, int | float | Array | NonTrainable)
    return coefficient(value if kept else jnp.asarray(value, jnp.float32))


@final
class NormalSampler(ActionSampler[Float[Array, "B parameters"]]):
    """A normal distribution of actions without bounds, or clipped to them.

    Input and standard deviations are those of `NormalTanhSampler`, `log_std` included.
    With `bounds`, a pair `(low, high)` of numbers or of one number per component, an
    action is `clip(raw, low, high)`, and its log-likelihood that of the raw action: to
    PPO, clipping is a part of the environment. So the gradient goes on where an action
    is clipped, and the density stays a density.

    The regularisation loss is minus `entropy_weight` times the entropy of the raw
    action, in closed form. Where `inference` is set a new action is the mean, clipped.
    """

    entropy_weight: Coefficient = eqx.field(converter=coefficient)
    min_std: Coefficient = eqx.field(default=1e-3, converter=coefficient)
    std_scale: Coefficient = eqx.field(default=1.0, converter=coefficient)
    bounds: tuple[Coefficient, Coefficient] | None = eqx.field(
        default=None, kw_only=True, converter=_bounds
    )
    log_std: Array | NonTrainable[Array] | None = eqx.field(default=None, kw_only=True)
    inference: bool = eqx.field(default=False, kw_only=True)

    def __check_init__(self):
        """Refuses standard deviations that could be 0."""
        expect_positive(min_std=self.min_std, std_scale=self.std_scale)
        _expect_log_std(self.log_std)

    def distribution(self, x: Float[Array, "B parameters"]) -> Normal:
        """From `[B, 2 * n]`, or from `[B, n]` with `log_std`."""
        mean, std = _mean_and_std(x, self.log_std, self.min_std, self.std_scale)
        if self.bounds is None:
            return Normal(mean, std)
        low, high = map(number, self.bounds)
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
    x: Float[Array, "..."],
    log_std: Any,
    min_std: Coefficient,
    std_scale: Coefficient,
) -> tuple[Float[Array, "B n"], Float[Array, "B n"]]:
    """What the parameters `x` say, in `float32`."""
    if log_std is None:
        if x.ndim != 2 or x.shape[-1] % 2:
            raise CompositionError(
                "expected x [B, 2 * action_size] (means, then raw standard "
                f"deviations), got {list(x.shape)}"
            )
        mean, raw = jnp.split(x.astype(jnp.float32), 2, axis=-1)
        spread = jax.nn.softplus(raw)
    else:
        value = _value_of(log_std).astype(jnp.float32)
        if x.ndim != 2 or x.shape[1:] != value.shape:
            raise CompositionError(
                f"expected x [B, {len(value)}] (means alone, since the sampler has "
                f"a log_std), got {list(x.shape)}"
            )
        mean = x.astype(jnp.float32)
        spread = jnp.broadcast_to(jnp.exp(value), mean.shape)
    return mean, (spread + number(min_std)) * number(std_scale)


def _value_of(log_std: Any) -> Any:
    return log_std.value if isinstance(log_std, NonTrainable) else log_std


def _expect_log_std(log_std: Any) -> None:
    value = _value_of(log_std)
    if value is None or (eqx.is_inexact_array(value) and value.ndim == 1):
        return
    raise ValueError(
        "expected log_std to be an array of floats, one per component of the action, "
        f"such as jnp.zeros(2), got {value.dtype} {list(value.shape)}"
    )
