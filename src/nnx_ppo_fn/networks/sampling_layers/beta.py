"""Beta distributions, stretched to (-1, 1): bounded without being squashed."""

import math
from collections.abc import Callable, Mapping
from typing import Any, final

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jax.scipy.special import betaln, digamma
from jaxtyping import Array, Float

from ..._custom_types import Keys
from .._trainable import Coefficient, converted, number
from ._parameters import expect_scales, halves
from .action_sampler import ActionDistribution, ActionSampler, as_entropy_weight


@final
class Beta(ActionDistribution):
    """Independent actions `2 u - 1` with `u` from a beta distribution, `[B, n]`.

    A raw action is the logit of `u`, in which `log u` and `log(1 - u)` are exact at
    both ends: a `u` near 1 would have lost its distance to 1.

    **Arguments:**

    - `alpha`, `beta`: the concentrations, which pull to 1 and to -1; `float32`.
    """

    alpha: Float[Array, "B n"]
    beta: Float[Array, "B n"]

    def sample(self, keys: Keys) -> Float[Array, "B n"]:
        """The difference of two log-gamma variates; without a gradient."""
        concentrations = jax.lax.stop_gradient(
            jnp.stack([self.alpha, self.beta], axis=1)
        )
        log_gammas = jax.vmap(
            lambda key, each: jr.loggamma(key, each, dtype=each.dtype)
        )(keys, concentrations)
        return log_gammas[:, 0] - log_gammas[:, 1]

    def mode(self) -> Float[Array, "B n"]:
        """The likeliest logit, `log(alpha / beta)`: that of the mean of `u`."""
        return jnp.log(self.alpha) - jnp.log(self.beta)

    def action(self, raw: Float[Array, "B n"]) -> Float[Array, "B n"]:
        """`2 u - 1`, which is `tanh(raw / 2)`."""
        return jnp.tanh(raw / 2)

    def log_likelihood(self, raw: Float[Array, "B n"]) -> Float[Array, " B"]:
        """The log-density of the action on (-1, 1)."""
        log_u, log_1_minus_u = -jax.nn.softplus(-raw), -jax.nn.softplus(raw)
        return jnp.sum(
            (self.alpha - 1) * log_u
            + (self.beta - 1) * log_1_minus_u
            - _log_beta(self.alpha, self.beta)
            - math.log(2),
            axis=-1,
        )

    def entropy(self, sample: Callable[[], Any]) -> Float[Array, " B"]:
        """In closed form."""
        total = digamma(self.alpha + self.beta)
        return jnp.sum(
            _log_beta(self.alpha, self.beta)
            + (self.alpha - 1) * (total - digamma(self.alpha))
            + (self.beta - 1) * (total - digamma(self.beta))
            + math.log(2),
            axis=-1,
        )

    def metrics(self) -> Mapping[str, Float[Array, " B"]]:
        """Mean and standard deviation of the action, over its components."""
        total = self.alpha + self.beta
        mean = (self.alpha - self.beta) / total
        std = 2 * jnp.sqrt(self.alpha / total * (self.beta / total) / (total + 1))
        return {"mu": jnp.mean(mean, axis=-1), "sigma": jnp.mean(std, axis=-1)}


@jax.custom_jvp
def _log_beta(
    alpha: Float[Array, "B n"], beta: Float[Array, "B n"]
) -> Float[Array, "B n"]:
    """The logarithm of the beta function, whose derivative is a matter of digammas.

    Differentiating `betaln` itself goes through its expansions: twenty times the code.
    """
    return betaln(alpha, beta)


@_log_beta.defjvp
def _(primals: tuple[Array, Array], tangents: tuple[Array, Array]) -> Any:
    (alpha, beta), (alpha_dot, beta_dot) = primals, tangents
    total = digamma(alpha + beta)
    slope = (digamma(alpha) - total) * alpha_dot + (digamma(beta) - total) * beta_dot
    return _log_beta(alpha, beta), slope


@final
class BetaSampler(ActionSampler[Float[Array, "B two_actions"]]):
    """A beta distribution of actions in (-1, 1).

    The input holds the raw concentrations `alpha` of all components, then `beta`; a
    concentration is `softplus(raw) + min_concentration`. From 1 on, which is the
    default, every density has a single peak (Chou et al. 2017, "Improving Stochastic
    Policy Gradients in Continuous Control with Deep Reinforcement Learning using the
    Beta Distribution").

    The log-likelihood is that of the action on (-1, 1). In `float32` it and the entropy
    are right to 1e-3 up to concentrations of 1000, and to about a millionth of the
    concentration beyond. The regularisation loss is
    minus `entropy_weight` times the entropy, in closed form. Where `inference` is set a
    new action is the mean, `(alpha - beta) / (alpha + beta)`.
    """

    entropy_weight: Coefficient = eqx.field(converter=as_entropy_weight)
    min_concentration: Coefficient = eqx.field(
        default=1.0, converter=converted("min_concentration")
    )
    inference: bool = eqx.field(default=False, kw_only=True)

    def __check_init__(self):
        """Refuses concentrations that could be 0, as softplus alone can."""
        expect_scales(min_concentration=self.min_concentration)

    def distribution(self, x: Float[Array, "B two_actions"]) -> Beta:
        """From raw concentrations `[B, 2 * n]`."""
        least = number(self.min_concentration, "min_concentration")
        alpha, beta = (
            jax.nn.softplus(raw) + least
            for raw in halves(x, "raw concentrations alpha, then beta")
        )
        return Beta(alpha, beta)
