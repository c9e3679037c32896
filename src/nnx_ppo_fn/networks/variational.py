"""Stochastic latent layers, trained by reparameterisation."""

import functools as ft
from typing import Any, final

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from .._custom_types import Keys
from .._expect import as_count, expect_flags
from .._keys import normals
from ._errors import expect_features, expect_floating
from ._trainable import Coefficient, converted, expect_positive, number
from .types import (
    output,
    StatefulModuleOutput,
    StochasticModule,
    UnrolledModule,
)
from .unroll import unroll


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

    latent_size: int = eqx.field(
        static=True, converter=ft.partial(as_count, name="latent_size")
    )
    kl_weight: Coefficient = eqx.field(default=1.0, converter=converted("kl_weight"))
    min_std: Coefficient = eqx.field(default=1e-6, converter=converted("min_std"))
    inference: bool = eqx.field(default=False, kw_only=True)

    def __check_init__(self):
        """Refuses standard deviations that could be 0."""
        expect_flags(inference=self.inference, fresh_keys=self.fresh_keys)
        expect_positive(min_std=self.min_std)

    def apply(
        self,
        draw: Keys,
        x: Float[Array, "B features"],
        rollout_extras: Any = None,
    ) -> StatefulModuleOutput[Any, Float[Array, "B {self.latent_size}"]]:
        """Latents `[B, latent_size]`; their means where `inference` is set."""
        expect_features(x, 2 * self.latent_size)
        expect_floating(x)
        mean, raw = jnp.split(x.astype(jnp.float32), 2, axis=-1)
        std = jax.nn.softplus(raw) + number(self.min_std, "min_std")
        noise = 0.0 if self.inference else std * normals(draw, self.latent_size)
        divergence = jnp.sum(
            0.5 * (jnp.square(mean) + jnp.square(std) - 1) - jnp.log(std), axis=-1
        )
        return output(
            (mean + noise).astype(x.dtype),
            batch=len(x),
            regularization_loss=number(self.kl_weight, "kl_weight") * divergence,
            metrics={
                "kl_divergence": divergence,
                "mu": jnp.mean(mean, axis=-1),
                "sigma": jnp.mean(std, axis=-1),
            },
        )


@final
class AR1State(eqx.Module):
    """The carry of an `AR1VariationalBottleneck`.

    - `keys`: the chain of keys, `[B]`.
    - `last_latent`: of the step before, `[B, latent_size]`, in `float32` and not yet
      rounded to the dtype of the output; 0 where there is none.
    - `has_last`: whether there was a step before in this episode, `[B]`.
    """

    keys: Keys
    last_latent: Float[Array, "B latents"]
    has_last: Bool[Array, " B"]


@final
class AR1VariationalBottleneck(
    UnrolledModule[AR1State, Float[Array, "B two_latents"], Float[Array, "B latents"]]
):
    """A `VariationalBottleneck` whose latents also pay for changing from step to step.

    The regularisation loss is that of the bottleneck plus `ar1_weight * l2_diff`, where
    the metric `l2_diff` is the mean over latents of `(z - last_z)**2`, and 0 in the
    first step of an episode. With `backprop_through_time` the latent of the step before
    is drawn towards this one as well; without it no gradient flows into `last_z`.
    """

    latent_size: int = eqx.field(
        static=True, converter=ft.partial(as_count, name="latent_size")
    )
    kl_weight: Coefficient = eqx.field(default=1.0, converter=converted("kl_weight"))
    min_std: Coefficient = eqx.field(default=1e-6, converter=converted("min_std"))
    ar1_weight: Coefficient = eqx.field(default=1.0, converter=converted("ar1_weight"))
    backprop_through_time: bool = eqx.field(default=True, static=True)
    fresh_keys: bool = eqx.field(default=False, static=True, kw_only=True)
    inference: bool = eqx.field(default=False, kw_only=True)

    def __check_init__(self):
        """Refuses what a `VariationalBottleneck` refuses."""
        expect_flags(backprop_through_time=self.backprop_through_time)
        _ = self._bottleneck

    def initialize_state(self, keys: Keys) -> AR1State:
        """The chain, and no latent before the first."""
        return self._fresh(self._bottleneck.initialize_state(keys))

    def reset_state(self, state: AR1State) -> AR1State:
        """The chain as a bottleneck leaves it, and no latent before the first."""
        return self._fresh(self._bottleneck.reset_state(state.keys))

    def __call__(
        self,
        state: AR1State,
        x: Float[Array, "B features"],
        rollout_extras: Any = None,
    ) -> StatefulModuleOutput[AR1State, Float[Array, "B {self.latent_size}"]]:
        """Latents `[B, latent_size]`; their means where `inference` is set."""
        expect_features(x, 2 * self.latent_size)
        expect_floating(x)
        sampled = self._bottleneck(state.keys, x.astype(jnp.float32), rollout_extras)
        next_state = AR1State(
            sampled.next_state, sampled.output, jnp.ones_like(state.has_last)
        )
        change = self._change(sampled.output, state.last_latent, state.has_last)
        return self._charged(sampled, change, next_state, x.dtype)

    def unroll(
        self,
        state: AR1State,
        xs: Float[Array, "T B features"],
        is_first: Bool[Array, "T B"],
        rollout_extras: Any = None,
    ) -> StatefulModuleOutput[AR1State, Float[Array, "T B {self.latent_size}"]]:
        """Scans the keys alone: a latent does not depend on the one before."""
        expect_features(xs, 2 * self.latent_size, name="xs", axes="T, B")
        expect_floating(xs)
        sampled = unroll(
            self._bottleneck,
            state.keys,
            xs.astype(jnp.float32),
            is_first,
            rollout_extras,
        )
        latents = jnp.concatenate([state.last_latent[None], sampled.output])
        has_latent = jnp.concatenate([state.has_last[None], jnp.ones_like(is_first)])
        next_state = AR1State(sampled.next_state, latents[-1], has_latent[-1])
        change = self._change(latents[1:], latents[:-1], has_latent[:-1] & ~is_first)
        return self._charged(sampled, change, next_state, xs.dtype)

    @property
    def _bottleneck(self) -> VariationalBottleneck:
        return VariationalBottleneck(
            self.latent_size,
            self.kl_weight,
            self.min_std,
            inference=self.inference,
            fresh_keys=self.fresh_keys,
        )

    def _fresh(self, keys: Keys) -> AR1State:
        batch = len(keys)
        return AR1State(
            keys,
            jnp.zeros((batch, self.latent_size), jnp.float32),
            jnp.zeros(batch, jnp.bool_),
        )

    def _change(
        self,
        latent: Float[Array, "*batch latents"],
        last: Float[Array, "*batch latents"],
        has_last: Bool[Array, "*batch"],
    ) -> Float[Array, "*batch"]:
        """The mean square of the change since the step before; 0 without one."""
        if not self.backprop_through_time:
            last = jax.lax.stop_gradient(last)
        difference = jnp.where(has_last[..., None], latent - last, 0)
        return jnp.mean(jnp.square(difference), axis=-1)

    def _charged(
        self,
        sampled: StatefulModuleOutput[Any, Array],
        change: Float[Array, "*batch"],
        next_state: AR1State,
        dtype: Any,
    ) -> StatefulModuleOutput[AR1State, Array]:
        """The bottleneck's output, which now pays for the change too."""
        return StatefulModuleOutput(
            next_state,
            sampled.output.astype(dtype),
            sampled.regularization_loss
            + number(self.ar1_weight, "ar1_weight") * change,
            {**sampled.metrics, "l2_diff": change},
            sampled.rollout_extras,
        )
