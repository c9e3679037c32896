"""Action samplers: the last layer of a policy.

A sampler's raw action is the one thing that a replay must take from the rollout: the
same noise under new weights would be another action, and PPO needs the likelihood of
the action that was taken. It therefore travels as `rollout_extras`.
"""

import math
from collections.abc import Mapping
from typing import Any, cast, final

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Int

from .._custom_types import Keys
from .._keys import normals
from .._tree import shape_text
from ._errors import CompositionError
from ._trainable import Coefficient, coefficient, expect_positive, number
from .types import output, SampledAction, StatefulModuleOutput, StochasticModule


@final
class NormalTanhSampler(StochasticModule[Float[Array, "B two_actions"], SampledAction]):
    """A normal distribution squashed by `tanh` into actions in (-1, 1).

    The input holds means, then raw standard deviations: `std = (softplus(raw) +
    min_std) * std_scale`. The log-likelihood is that of the squashed action, with the
    logarithm of `1 - tanh(z)**2` written as `2 * (log 2 - z - softplus(-2 z))`, which
    neither overflows nor vanishes (Haarnoja et al. 2018, arXiv 1801.01290, appendix C).

    The regularisation loss is `entropy_weight` times the log-likelihood of a
    reparameterised sample: an unbiased estimate of the negative entropy. In the
    rollout that sample is the action; in the replay it is the same noise under the
    new weights.
    """

    entropy_weight: Coefficient = eqx.field(converter=coefficient)
    min_std: Coefficient = eqx.field(default=1e-3, converter=coefficient)
    std_scale: Coefficient = eqx.field(default=1.0, converter=coefficient)
    inference: bool = False

    def __check_init__(self):
        """Refuses standard deviations that could be 0, as softplus alone can."""
        expect_positive(min_std=self.min_std, std_scale=self.std_scale)

    def apply(
        self,
        draw: Keys,
        x: Float[Array, "B two_actions"],
        rollout_extras: Float[Array, "B actions"] | None = None,
    ) -> StatefulModuleOutput[Any, SampledAction]:
        """Actions `[B, n]` from parameters `[B, 2 * n]`.

        `rollout_extras` is the raw action, before `tanh`. Where `inference` is set a
        new action is the distribution's median, `tanh(mean)`.
        """
        if x.ndim != 2 or x.shape[-1] % 2:
            raise CompositionError(
                "expected x [B, 2 * action_size] (means, then raw standard "
                f"deviations), got {list(x.shape)}"
            )
        mean, raw_std = jnp.split(x.astype(jnp.float32), 2, axis=-1)
        std = (jax.nn.softplus(raw_std) + number(self.min_std)) * number(self.std_scale)
        noise = 0.0 if self.inference else std * normals(draw, mean.shape[-1])
        sample = mean + noise
        raw_action = (
            jax.lax.stop_gradient(sample) if rollout_extras is None else rollout_extras
        )
        return output(
            SampledAction(
                jnp.tanh(raw_action), tanh_normal_log_density(raw_action, mean, std)
            ),
            batch=len(x),
            regularization_loss=number(self.entropy_weight)
            * tanh_normal_log_density(sample, mean, std),
            metrics={
                "mu": jnp.mean(mean, axis=-1),
                "sigma": jnp.mean(std, axis=-1),
            },
            rollout_extras=raw_action,
        )


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
    normal = (
        -0.5 * jnp.square((raw_action - mean) / std)
        - jnp.log(std)
        - 0.5 * math.log(2 * math.pi)
    )
    log_slope = 2 * (math.log(2) - raw_action - jax.nn.softplus(-2 * raw_action))
    return jnp.sum(normal - log_slope, axis=-1)


@final
class CategoricalSampler(StochasticModule[Any, SampledAction]):
    """One of `n` actions, from logits.

    The input is `logits`, `[B, n]`, or a mapping with `"logits"` and `"mask"`, a
    boolean `[B, n]` that is True where an action is allowed; a logit of minus infinity
    forbids an action too. A forbidden action is never drawn; with one allowed action
    the log-likelihood and the entropy are 0. Where nothing is allowed the mask is
    ignored, so that every number stays finite.

    The regularisation loss is minus `entropy_weight` times the entropy, in closed form.
    """

    entropy_weight: Coefficient = eqx.field(converter=coefficient)
    inference: bool = False

    def apply(
        self,
        draw: Keys,
        x: Float[Array, "..."] | Mapping[str, Array],
        rollout_extras: Int[Array, " B"] | None = None,
    ) -> StatefulModuleOutput[Any, SampledAction]:
        """Actions `[B]`, integers below `n`; the likeliest where `inference` is set."""
        log_probabilities = _log_probabilities(_masked_logits(x))
        if rollout_extras is not None:
            action = rollout_extras
        elif self.inference:
            action = jnp.argmax(log_probabilities, axis=-1).astype(jnp.int32)
        else:
            action = jax.vmap(jr.categorical)(draw, log_probabilities)
            action = action.astype(jnp.int32)
        log_likelihood = jnp.take_along_axis(
            log_probabilities, action[:, None], axis=-1
        )[:, 0]
        entropy = -jnp.sum(jnp.exp(log_probabilities) * log_probabilities, axis=-1)
        return output(
            SampledAction(action, log_likelihood),
            batch=len(action),
            regularization_loss=-number(self.entropy_weight) * entropy,
            metrics={"entropy": entropy},
            rollout_extras=action,
        )


def _log_probabilities(logits: Float[Array, "B n"]) -> Float[Array, "B n"]:
    """Those of a softmax, with a finite number for what is impossible.

    The product of minus infinity and a probability of 0 would be NaN, and so would its
    gradient. `exp` of the smallest `float32` is exactly 0.
    """
    smallest = float(jnp.finfo(jnp.float32).min)
    return jnp.maximum(jax.nn.log_softmax(logits, axis=-1), smallest)


def _masked_logits(x: Any) -> Float[Array, "B n"]:
    """Logits in `float32`, minus infinity where the mask forbids."""
    if not isinstance(x, Mapping):
        return _expect_logits(x)
    entries = cast(Mapping[str, Array], x)
    if set(entries) != {"logits", "mask"}:
        raise CompositionError(
            'expected logits [B, n] or a mapping with "logits" and "mask", got one '
            f"with {sorted(entries)}"
        )
    logits, mask = _expect_logits(entries["logits"]), entries["mask"]
    if mask.shape != logits.shape or mask.dtype != jnp.bool_:
        raise CompositionError(
            f"expected a boolean mask {list(logits.shape)} like the logits, got "
            f"{mask.dtype} {list(mask.shape)}"
        )
    allowed = mask | ~jnp.any(mask, axis=-1, keepdims=True)
    return jnp.where(allowed, logits, -jnp.inf)


def _expect_logits(logits: Any) -> Float[Array, "B n"]:
    if getattr(logits, "ndim", None) != 2:
        raise CompositionError(f"expected logits [B, n], got {shape_text(logits)}")
    return logits.astype(jnp.float32)
