"""What an action sampler is, and what it draws from.

A sampler's raw action is the one thing that a replay must take from the rollout: the
same noise under new weights would be another action, and PPO needs the likelihood of
the action that was taken. It therefore travels as `rollout_extras`.
"""

import abc
import functools as ft
from collections.abc import Callable, Mapping
from typing import Any, final

import equinox as eqx
import jax
from jaxtyping import Array, Float

from ..._custom_types import Keys
from .._trainable import Coefficient, number
from ..types import In, output, SampledAction, StatefulModuleOutput, StochasticModule


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
        """The likeliest raw action, for evaluations without noise."""

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
        """Numbers for the log, one per environment."""
        return {}


class ActionSampler(StochasticModule[In, SampledAction]):
    """The last layer of a policy: draws an action, and says how likely it was.

    An author writes `distribution` and declares the two fields. The regularisation
    loss is minus `entropy_weight` times the entropy. Where `inference` is set, new
    actions are the distribution's mode.

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

        @ft.cache
        def sample() -> Any:
            return distribution.mode() if self.inference else distribution.sample(draw)

        raw = (
            jax.lax.stop_gradient(sample())
            if rollout_extras is None
            else rollout_extras
        )
        return output(
            SampledAction(distribution.action(raw), distribution.log_likelihood(raw)),
            batch=len(draw),
            regularization_loss=-number(self.entropy_weight)
            * distribution.entropy(sample),
            metrics=distribution.metrics(),
            rollout_extras=raw,
        )
