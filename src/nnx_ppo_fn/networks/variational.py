"""Stochastic latent layers, trained by reparameterisation."""

from typing import Any, final

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._custom_types import Keys
from .._keys import normals
from ._errors import expect_features
from ._trainable import Coefficient, coefficient, expect_positive, number
from .types import output, StatefulModuleOutput, StochasticModule


@final
class VariationalBottleneck(
    StochasticModule[Float[Array, "B two_latents"], Float[Array, "B latents"]]
):
    """Samples a latent `z ~ N(mean, std)` and pays for what it says about the input.

    The input holds means, then raw standard deviations: `std = softplus(raw) +
    min_std`. The regularisation loss is `kl_weight` times the Kullback-Leibler
    divergence from the standard normal, `sum(mean**2 + std**2 - 1) / 2 - sum(log std)`
    (Kingma & Welling 2014, arXiv 1312.6114, appendix B).

    The carry is a chain of keys `[B]`, so a replay under new weights sees the same
    noise with a new mean and a new scale: the reparameterised gradient.
    """

    latent_size: int = eqx.field(static=True)
    kl_weight: Coefficient = eqx.field(default=1.0, converter=coefficient)
    min_std: Coefficient = eqx.field(default=1e-6, converter=coefficient)
    inference: bool = False

    def __check_init__(self):
        """Refuses an empty latent, and standard deviations that could be 0."""
        if self.latent_size < 1:
            raise ValueError(f"latent_size must be at least 1, got {self.latent_size}")
        expect_positive(min_std=self.min_std)

    def apply(
        self,
        draw: Keys,
        x: Float[Array, "B features"],
        rollout_extras: Any = None,
    ) -> StatefulModuleOutput[Any, Float[Array, "B {self.latent_size}"]]:
        """Latents `[B, latent_size]`; their means where `inference` is set."""
        expect_features(x, 2 * self.latent_size)
        mean, raw = jnp.split(x.astype(jnp.float32), 2, axis=-1)
        std = jax.nn.softplus(raw) + number(self.min_std)
        noise = 0.0 if self.inference else std * normals(draw, self.latent_size)
        divergence = jnp.sum(
            0.5 * (jnp.square(mean) + jnp.square(std) - 1) - jnp.log(std), axis=-1
        )
        return output(
            (mean + noise).astype(x.dtype),
            batch=len(x),
            regularization_loss=number(self.kl_weight) * divergence,
            metrics={
                "kl_divergence": divergence,
                "mu": jnp.mean(mean, axis=-1),
                "sigma": jnp.mean(std, axis=-1),
            },
        )
