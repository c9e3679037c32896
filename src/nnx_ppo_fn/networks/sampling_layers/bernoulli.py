"""Switches that are on or off, independently of each other."""

from collections.abc import Callable
from typing import Any, final

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Bool, Float, Int

from ..._custom_types import Keys
from ..._keys import drawn
from .._trainable import Coefficient
from ._logits import IMPOSSIBLE, read_logits
from .action_sampler import ActionDistribution, ActionSampler, as_entropy_weight


@final
class Bernoulli(ActionDistribution):
    """Independent switches, `[B, n]`.

    **Arguments:**

    - `logits`: of being on, `float32`; infinite ones leave no choice.
    - `allowed`: where a switch may be on; elsewhere it is off, for certain.
    """

    logits: Float[Array, "B n"]
    allowed: Bool[Array, "B n"]

    def sample(self, keys: Keys) -> Int[Array, "B n"]:
        """On where the logit exceeds logistic noise.

        That noise stops short of what is rarer than its resolution. A uniform number
        is 0 with a probability of 1e-7, and would then turn anything on.
        """
        noise = drawn(jr.logistic, keys, self.logits.shape[-1:])
        return ((self._finite + noise > 0) & self.allowed).astype(jnp.int32)

    def mode(self) -> Int[Array, "B n"]:
        """On where that is likelier than off."""
        return ((self._finite > 0) & self.allowed).astype(jnp.int32)

    def log_likelihood(self, raw: Int[Array, "B n"]) -> Float[Array, " B"]:
        """Summed over the switches that are allowed; another that is on cannot be."""
        sign = jnp.where(raw == 1, -1.0, 1.0)
        chosen = -jax.nn.softplus(sign * self._finite)
        forced = jnp.where(raw == 1, IMPOSSIBLE, 0.0)
        return jnp.sum(jnp.where(self.allowed, chosen, forced), axis=-1)

    def entropy(self, sample: Callable[[], Any]) -> Float[Array, " B"]:
        """In closed form."""
        logits = self._finite
        entropies = jax.nn.sigmoid(logits) * jax.nn.softplus(-logits)
        entropies += jax.nn.sigmoid(-logits) * jax.nn.softplus(logits)
        return jnp.sum(jnp.where(self.allowed, entropies, 0.0), axis=-1)

    @property
    def _finite(self) -> Float[Array, "B n"]:
        safe = jnp.where(self.allowed, self.logits, 0.0)
        return jnp.clip(safe, IMPOSSIBLE, -IMPOSSIBLE)


@final
class BernoulliSampler(ActionSampler[Any]):
    """Switches that are on (1) or off (0), each from a logit.

    The input is `logits`, `[B, n]`, or a tree with parts `logits` and `mask`, a
    boolean `[B, n]` that is True where a switch may be on. Elsewhere it is off, and
    adds 0 to log-likelihood and entropy: where nothing is allowed both are 0. A logit
    of minus infinity forbids too.

    Actions are integers `[B, n]`; where `inference` is set, 1 where the logit is above
    0. Log-likelihood and entropy are sums over the switches, and the regularisation
    loss is minus `entropy_weight` times the entropy.
    """

    entropy_weight: Coefficient = eqx.field(converter=as_entropy_weight)
    inference: bool = eqx.field(default=False, kw_only=True)

    def distribution(self, x: Any) -> Bernoulli:
        """From logits `[B, n]`, or from logits and a mask."""
        return Bernoulli(*read_logits(x))
