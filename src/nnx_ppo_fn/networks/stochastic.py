"""Layers that draw: noisy neurons, dropout, stochastic gates.

Each environment draws from its own chain of keys, so a replay meets the noise of the
rollout. What is drawn is fixed and what the weights make of it is not: gradients are
those of the sample that the same noise gives under the present weights.
"""

from collections.abc import Sequence
from typing import Any, final, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Bool, Float
from numpy.typing import NDArray

from .._custom_types import Features, Keys
from .._expect import as_count, expect_choice, expect_flags
from .._keys import advance_keys, drawn, EpisodeKeys, expect_keys
from .._tree import shape_text
from ._errors import CompositionError, expect_features, expect_floating
from ._trainable import (
    Coefficient,
    coefficient,
    contents,
    converted,
    expect_positive,
    known,
    number,
)
from .types import ChainedModule, output, StatefulModuleOutput, StochasticModule


Numbers = int | float | Array | NDArray[Any] | Sequence[float]
"""A number, or one for each of several features."""

# Numbers below count as 0 where they are computed with.
_SMALLEST = float(np.finfo(np.float32).tiny)


@final
class GaussianNoise(StochasticModule[Features, Features]):
    """Noisy neurons: `x + std * n`, or `x * (1 + std * n)`, with `n ~ N(0, 1)`.

    Every feature of every environment gets a number of its own in every step.

    A learned scale is `std = exp(log_std)`, trained by reparameterisation. Nothing but
    the loss holds it where it is: noise that does not help is trained away.
    """

    fixed_std: Coefficient | None
    log_std: Float[Array, "..."] | None
    multiplicative: bool = eqx.field(static=True)
    inference: bool

    def __init__(
        self,
        std: Numbers,
        *,
        multiplicative: bool = False,
        learned: bool = False,
        fresh_keys: bool = False,
        inference: bool = False,
    ):
        """**Arguments:**

        - `std`: the scale of the noise: a number, or an array that broadcasts to one
          environment's features, such as one number per neuron.
        - `multiplicative`: whether the noise grows with the signal.
        - `learned`: whether the scale is trained, starting at `std`, with as many
          parameters as `std` has numbers.
        - `fresh_keys`: whether a reset begins a new chain of keys.
        - `inference`: whether the noise is left out.

        **Raises:**

        `ValueError` for a negative scale, or a learned one that is not above 0, and
        `TypeError` for what is no number and for a flag that is not a `bool`.
        """
        expect_flags(
            multiplicative=multiplicative,
            learned=learned,
            fresh_keys=fresh_keys,
            inference=inference,
        )
        scales = known(std, "std")
        if learned and not np.all(scales >= _SMALLEST):
            raise ValueError(
                f"a learned std must start above 0, got {std}; its logarithm is what "
                "is trained"
            )
        if not np.all((scales >= 0) & np.isfinite(scales)):
            raise ValueError(f"std must be at least 0 and finite, got {std}")
        std = _one_or_array(std)
        self.fixed_std = None if learned else coefficient(std)
        self.log_std = jnp.log(jnp.asarray(std, jnp.float32)) if learned else None
        self.multiplicative = multiplicative
        self.fresh_keys = fresh_keys
        self.inference = inference

    @property
    def std(self) -> float | Float[Array, "..."]:
        """The scale of the noise, fixed or as it has been learned."""
        if self.log_std is not None:
            return jnp.exp(self.log_std.astype(jnp.float32))
        return 0.0 if self.fixed_std is None else contents(self.fixed_std)

    def apply(
        self, draw: Keys, x: Features, rollout_extras: Any = None
    ) -> StatefulModuleOutput[Any, Features]:
        """`x` with noise, in its own dtype; `x` itself where `inference` is set."""
        expect_floating(x)
        if self.inference:
            return output(x, batch=len(x))
        wide = _wide(x)
        normal = drawn(jr.normal, draw, x.shape[1:]).astype(wide.dtype)
        noise = _for_features(self.std, x, "std") * normal
        noisy = wide * (1 + noise) if self.multiplicative else wide + noise
        return output(noisy.astype(x.dtype), batch=len(x))


@final
class Dropout(ChainedModule[EpisodeKeys, Keys, Features, Features]):
    """Silences features at random and scales the others up by `1 / (1 - rate)`.

    Each environment has a mask of its own, so the mean over masks is the input
    (Srivastava et al. 2014, JMLR 15). A mask is drawn anew in every step, or held so
    that one thinned network plays a whole episode.

    The carry is `EpisodeKeys`: the key of the episode's mask is drawn at its start. So
    every reset brings a fresh key, and there is no `fresh_keys` to ask for one.
    """

    rate: Coefficient = eqx.field(converter=converted("rate"))
    hold: Literal["step", "episode"] = eqx.field(default="step", static=True)
    inference: bool = eqx.field(default=False, kw_only=True)

    def __check_init__(self):
        """Refuses rates at which nothing would be left, and unknown words."""
        expect_flags(inference=self.inference)
        if isinstance(self.rate, float) and not 0 <= np.float32(self.rate) < 1:
            raise ValueError(
                f"rate must be at least 0 and below 1, got {self.rate:g}; it is the "
                "probability with which a feature is silenced"
            )
        expect_choice("hold", self.hold, ("step", "episode"))

    def initialize_state(self, keys: Keys) -> EpisodeKeys:
        """The chain, and the first episode's key."""
        expect_keys(keys)
        return EpisodeKeys.of(keys)

    def reset_state(self, state: EpisodeKeys) -> EpisodeKeys:
        """The chain goes on, and gives the next episode's key."""
        return EpisodeKeys.of(state.chain)

    def advance(self, state: EpisodeKeys) -> tuple[EpisodeKeys, Keys]:
        """The episode's key, or a fresh one from the chain."""
        if self.hold == "episode":
            return state, state.held.key
        chain, draw = advance_keys(state.chain)
        return EpisodeKeys(chain, state.held), draw

    def apply(
        self, draw: Keys, x: Features, rollout_extras: Any = None
    ) -> StatefulModuleOutput[Any, Features]:
        """`x` with its mask, in its own dtype; `x` itself where `inference` is set."""
        expect_floating(x)
        if self.inference:
            return output(x, batch=len(x))
        rate = jnp.asarray(number(self.rate, "rate"), jnp.float32)
        kept = drawn(jr.uniform, draw, x.shape[1:]) >= rate
        # In a sweep a rate may be 1: the infinity would be in the gradient too.
        scaled = _wide(x) * (1 / jnp.where(rate < 1, 1 - rate, 1))
        return output(jnp.where(kept, scaled, 0).astype(x.dtype), batch=len(x))


@final
class BernoulliGate(
    StochasticModule[Float[Array, "B features"], Float[Array, "B features"]]
):
    """Lets each feature pass, or not, with a probability that is learned.

    In every step the gate of a feature is 1 where `logit + noise > 0`, with `noise`
    from the standard logistic distribution, and 0 elsewhere: open with probability
    `sigmoid(logit)`. The output is `gate * x`, always with a hard gate. A hard gate has
    no derivative, so the logits are trained on an estimate:

    - `"straight_through"`: as if the derivative of the gate with respect to its
      probability were 1 (Bengio et al. 2013, arXiv 1308.3432). The expectation is right
      where the loss is linear in each gate, and off by its curvature otherwise. The
      estimate does not depend on how near the gate came to tipping over, so its
      variance is low.
    - `"relaxed"`: the derivative of `sigmoid((logit + noise) / temperature)` (Maddison
      et al. 2017, arXiv 1611.00712; Jang et al. 2017, arXiv 1611.01144), which credits
      the gates that nearly tipped over. In the limit of a low temperature the
      expectation is right where the loss is quadratic in each gate; above it there is
      a bias in proportion to `temperature`, while the variance goes as
      `1 / temperature`.

    The input's own gradient passes through open gates only, and has no bias. A closed
    gate gives 0 whatever is behind it, infinities and NaN included; features that are
    not finite are left out of the estimate.
    """

    logits: Float[Array, " size"]
    temperature: Coefficient
    size: int = eqx.field(static=True)
    gradient: Literal["straight_through", "relaxed"] = eqx.field(static=True)
    inference: bool

    def __init__(
        self,
        size: int,
        *,
        initial_probability: Numbers = 0.5,
        gradient: Literal["straight_through", "relaxed"] = "straight_through",
        temperature: int | float | Array = 0.5,
        fresh_keys: bool = False,
        inference: bool = False,
    ):
        """**Arguments:**

        - `size`: how many features, each with a gate of its own.
        - `initial_probability`: of an open gate: a number, or one per feature.
        - `gradient`: which estimate the logits are trained on.
        - `temperature`: of the relaxed gate; lower is less biased and more noisy.
        - `fresh_keys`: whether a reset begins a new chain of keys.
        - `inference`: whether features are multiplied by their probability instead.

        **Raises:**

        `ValueError` for a size or temperature that is not positive, a probability that
        is not strictly between 0 and 1, and an unknown gradient; `TypeError` for what
        is no number, and for a flag that is not a `bool`.
        """
        size = as_count(size, name="size")
        expect_flags(fresh_keys=fresh_keys, inference=inference)
        expect_choice("gradient", gradient, ("straight_through", "relaxed"))
        probabilities = known(initial_probability, "initial_probability")
        if not np.all((probabilities >= _SMALLEST) & (probabilities < 1)):
            raise ValueError(
                "initial_probability must be strictly between 0 and 1, got "
                f"{initial_probability}; a gate that is shut for good never learns"
            )
        probability = jnp.asarray(initial_probability, jnp.float32)
        if probability.shape not in ((), (size,)):
            raise ValueError(
                f"expected initial_probability to be a number or [{size}], got "
                f"{shape_text(probability)}"
            )
        logits = jnp.log(probability) - jnp.log1p(-probability)
        self.logits = jnp.broadcast_to(logits, (size,))
        self.temperature = coefficient(temperature, name="temperature")
        expect_positive(temperature=self.temperature)
        self.size = size
        self.gradient = gradient
        self.fresh_keys = fresh_keys
        self.inference = inference

    def apply(
        self,
        draw: Keys,
        x: Float[Array, "B features"],
        rollout_extras: Any = None,
    ) -> StatefulModuleOutput[Any, Float[Array, "B {self.size}"]]:
        """The features whose gates are open, `[B, size]`, in the dtype of `x`.

        The metric `open` is the share of an environment's gates that are.
        """
        expect_features(x, self.size)
        expect_floating(x)
        wide = _wide(x)
        logits = jnp.broadcast_to(self.logits.astype(jnp.float32), x.shape)
        if self.inference:
            gate = jax.nn.sigmoid(logits)
            gated = wide * gate.astype(wide.dtype)
        else:
            noisy = logits + drawn(jr.logistic, draw, x.shape[1:])
            gate = noisy > 0
            gated = _through(gate, self._smooth(logits, noisy), wide)
        return output(
            gated.astype(x.dtype),
            batch=len(x),
            metrics={"open": jnp.mean(gate.astype(jnp.float32), axis=-1)},
        )

    def _smooth(
        self, logits: Float[Array, "B size"], noisy: Float[Array, "B size"]
    ) -> Float[Array, "B size"]:
        """What has the derivative that the hard gate is given."""
        if self.gradient == "straight_through":
            return jax.nn.sigmoid(logits)
        return jax.nn.sigmoid(noisy / number(self.temperature, "temperature"))


def _through(
    gate: Bool[Array, "B size"],
    smooth: Float[Array, "B size"],
    x: Float[Array, "B size"],
) -> Float[Array, "B size"]:
    """`x` where the gate is open and 0 elsewhere, exactly, with the derivative of
    `smooth * x` by `smooth`.

    A select, since 0 times infinity is NaN. What is added to it is 0 for every finite
    `x`, and only that is let into it.
    """
    residual = (smooth - jax.lax.stop_gradient(smooth)).astype(x.dtype)
    finite = jnp.where(jnp.isfinite(x), x, 0)
    return jnp.where(gate, x, 0) + residual * finite


def _one_or_array(numbers: Numbers) -> float | Array:
    if isinstance(numbers, jax.Array | Sequence) or np.ndim(numbers):
        return jnp.asarray(numbers, jnp.float32)
    return float(numbers)


def _for_features(
    numbers: float | Array, x: Features, name: str
) -> Float[Array, "1 ..."]:
    """Numbers for a row of `x`, one or several, as they apply to all its rows."""
    values = jnp.asarray(numbers, _wide(x).dtype)
    try:
        return jnp.broadcast_to(values, x.shape[1:])[None]
    except ValueError:
        raise CompositionError(
            f"{name} {shape_text(values)} does not broadcast to the features of x "
            f"{shape_text(x)}, which are {list(x.shape[1:])}"
        ) from None


def _wide(x: Features) -> Features:
    """`x` in `float32` at least."""
    return x if x.dtype == jnp.float64 else x.astype(jnp.float32)
