"""What an action sampler is, and what it draws from.

A sampler's raw action is the one thing that a replay must take from the rollout: the
same noise under new weights would be another action, and PPO needs the likelihood of
the action that was taken. It therefore travels as `rollout_extras`.
"""

import abc
import functools as ft
from collections.abc import Callable, Mapping
from typing import Any, cast, final

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..._custom_types import Keys
from ..._expect import expect_flags, is_real
from ..._tree import shape_text
from .._errors import CompositionError
from .._trainable import Coefficient, converted, NonTrainable, number
from ..types import In, output, SampledAction, StatefulModuleOutput, StochasticModule
from ._parameters import expect_finite


as_entropy_weight = converted("entropy_weight")
"""Converts the field `entropy_weight`, so that an array in it does not train."""


class ActionDistribution(eqx.Module):
    """A distribution of actions for each environment.

    It is drawn from and measured at *raw* actions, whatever is easiest to compute with;
    `action` turns them into what the environment receives. Numbers are `float32`.
    """

    @abc.abstractmethod
    def sample(self, keys: Keys) -> Any:
        """A raw action for each environment, each drawn from its own key.

        **Arguments:**

        - `keys`: one per environment, `[B]`, consumed.

        **Returns:**

        Leaves `[B, ...]`.
        """

    @abc.abstractmethod
    def mode(self) -> Any:
        """The likeliest raw action, or a typical one, for evaluations without noise."""

    def action(self, raw: Any) -> Any:
        """What the environment receives: the raw action, unless a family says else."""
        return raw

    @abc.abstractmethod
    def log_likelihood(self, raw: Any) -> Float[Array, " B"]:
        """The natural logarithm of the action's density or probability.

        **Arguments:**

        - `raw`: raw actions, as `sample` gives them.
        """

    @abc.abstractmethod
    def entropy(self, sample: Callable[[], Any]) -> Float[Array, " B"]:
        """The entropy in nats, or an estimate of it, with its gradient.

        **Arguments:**

        - `sample`: gives raw actions. Where there is no closed form,
          `-self.log_likelihood(sample())` is an unbiased estimate, with the right
          gradient if samples are reparameterised. Unless it is called, a replay draws
          nothing.
        """

    def metrics(self) -> Mapping[str, Float[Array, " B"]]:
        """Numbers for the log beside the `entropy`, one per environment."""
        return {}


class ActionSampler(StochasticModule[In, SampledAction]):
    """The last layer of a policy: draws an action, and says how likely it was.

    An author writes `distribution` and declares the two fields. The regularisation
    loss is minus `entropy_weight` times the entropy. It is a number, or an array in
    `NonTrainable`: a bare one would train. Where `inference` is set, new actions are
    the distribution's mode.

    **Example:**

    ```python
    class SharpSampler(ActionSampler):
        entropy_weight: float = 0.01
        inference: bool = False

        def distribution(self, x):
            return Categorical(10 * x.astype("float32"))
    ```
    """

    entropy_weight: eqx.AbstractVar[Coefficient]
    inference: eqx.AbstractVar[bool]

    def __check_init__(self):
        """Refuses flags that are none, and weights that would train or spoil it."""
        expect_flags(inference=self.inference, fresh_keys=self.fresh_keys)
        weight = self.entropy_weight
        bare = hasattr(weight, "dtype") or not is_real(weight)
        if bare and not isinstance(weight, NonTrainable):
            raise TypeError(
                f"{type(self).__name__}.entropy_weight must be a number, or an array "
                f"in NonTrainable, got {weight!r}; a bare array would train"
            )
        expect_finite(entropy_weight=weight)

    @abc.abstractmethod
    def distribution(self, x: In) -> ActionDistribution:
        """What actions are drawn from.

        **Arguments:**

        - `x`: the policy's output, leaves `[B, ...]`, of whatever float dtype.
        """

    @final
    def apply(
        self, draw: Keys, x: In, rollout_extras: Any = None
    ) -> StatefulModuleOutput[Any, SampledAction]:
        """A new action, or, in a replay, the likelihood of the recorded one.

        `rollout_extras` is the raw action. No gradient flows through a new one.
        """
        distribution = self.distribution(x)
        if not isinstance(cast(object, distribution), ActionDistribution):
            raise CompositionError(
                f"expected {type(self).__name__}.distribution to return an "
                f"ActionDistribution, got {type(distribution).__name__}"
            )
        family = type(distribution).__name__

        def one_each(numbers: Any, method: str) -> Float[Array, " B"]:
            if getattr(numbers, "shape", None) != draw.shape:
                raise CompositionError(
                    f"expected {family}.{method} to return one number per "
                    f"environment, {shape_text(draw)}, got {shape_text(numbers)}"
                )
            return numbers.astype(jnp.float32)

        @ft.cache
        def sample() -> Any:
            return distribution.mode() if self.inference else distribution.sample(draw)

        raw = (
            jax.lax.stop_gradient(sample())
            if rollout_extras is None
            else rollout_extras
        )
        likelihood = one_each(distribution.log_likelihood(raw), "log_likelihood")
        entropy = one_each(distribution.entropy(sample), "entropy")
        return output(
            SampledAction(distribution.action(raw), likelihood),
            batch=len(draw),
            regularization_loss=-number(self.entropy_weight, "entropy_weight")
            * entropy,
            metrics={"entropy": entropy, **distribution.metrics()},
            rollout_extras=raw,
        )
