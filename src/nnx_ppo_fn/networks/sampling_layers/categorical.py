"""Choices: one among `n`, or several at once."""

from collections.abc import Callable, Iterable
from typing import Any, final

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, Int

from ..._custom_types import Keys
from ..._expect import as_count
from .._errors import CompositionError
from .._trainable import Coefficient
from ._logits import allowed_logits, entropy_of, log_probabilities, read_logits
from .action_sampler import ActionDistribution, ActionSampler, as_entropy_weight


@final
class Categorical(ActionDistribution):
    """One of `n` actions, or several independent choices.

    **Arguments:**

    - `logits`: `[B, n]` or `[B, choices, n]`, `float32`, where `n` is the most that any
      choice has; minus infinity for what is impossible.
    """

    logits: Float[Array, "B *choices n"]

    def sample(self, keys: Keys) -> Int[Array, " B *choices"]:
        """Integers below `n`, one for each choice."""
        drawn = jax.vmap(jr.categorical)(keys, log_probabilities(self.logits))
        return drawn.astype(jnp.int32)

    def mode(self) -> Int[Array, " B *choices"]:
        """The likeliest of each choice."""
        return jnp.argmax(self.logits, axis=-1).astype(jnp.int32)

    def log_likelihood(self, raw: Int[Array, " B *choices"]) -> Float[Array, " B"]:
        """The logarithm of the probability, summed over the choices."""
        chosen = jnp.take_along_axis(
            log_probabilities(self.logits), raw[..., None], axis=-1
        )
        return _over_choices(chosen[..., 0])

    def entropy(self, sample: Callable[[], Any]) -> Float[Array, " B"]:
        """In closed form, summed over the choices."""
        return _over_choices(entropy_of(log_probabilities(self.logits)))


@final
class CategoricalSampler(ActionSampler[Any]):
    """One of `n` actions, from logits.

    The input is `logits`, `[B, n]`, or a tree with parts `logits` and `mask`, a
    boolean `[B, n]` that is True where an action is allowed; a logit of minus infinity
    forbids an action too. A forbidden action is never drawn; with one allowed action
    the log-likelihood and the entropy are 0. Where nothing is allowed the mask is
    ignored, so that every number stays finite.

    Actions are integers `[B]` below `n`; where `inference` is set, the likeliest. The
    regularisation loss is minus `entropy_weight` times the entropy, in closed form.
    """

    entropy_weight: Coefficient = eqx.field(converter=as_entropy_weight)
    inference: bool = eqx.field(default=False, kw_only=True)

    def distribution(self, x: Any) -> Categorical:
        """From logits `[B, n]`, or from logits and a mask."""
        return Categorical(allowed_logits(*read_logits(x)))


def _sizes(sizes: Iterable[int]) -> tuple[int, ...]:
    """Converts integers of Python or NumPy, and refuses choices between nothing."""
    if not isinstance(sizes, Iterable):
        raise TypeError(f"expected sizes, one for each choice, got {sizes!r}")
    counts = tuple(
        as_count(size, name=f"sizes[{choice}]") for choice, size in enumerate(sizes)
    )
    if not counts:
        raise ValueError("expected sizes, one for each choice, got none")
    return counts


@final
class MultiCategoricalSampler(ActionSampler[Any]):
    """Several independent choices at once, from the logits of all of them.

    Choice `i` has `sizes[i]` possibilities. The input is `logits`, `[B, sum(sizes)]`,
    those of the first choice first, or a tree with parts `logits` and `mask`, as for
    `CategoricalSampler`: each choice obeys its own part of the mask, and ignores it
    where it allows nothing.

    Actions are integers `[B, len(sizes)]`; where `inference` is set, the likeliest of
    each choice. Log-likelihood and entropy are sums over the choices, and the
    regularisation loss is minus `entropy_weight` times the entropy.
    """

    entropy_weight: Coefficient = eqx.field(converter=as_entropy_weight)
    sizes: tuple[int, ...] = eqx.field(static=True, converter=_sizes)
    inference: bool = eqx.field(default=False, kw_only=True)

    def distribution(self, x: Any) -> Categorical:
        """From logits `[B, sum(sizes)]`, or from logits and a mask."""
        logits, mask = read_logits(x)
        total = sum(self.sizes)
        if logits.shape[-1] != total:
            raise CompositionError(
                f"expected logits [B, {total}] for choices of sizes "
                f"{list(self.sizes)}, got {list(logits.shape)}"
            )
        cuts = np.cumsum(self.sizes)[:-1]
        choices = map(
            allowed_logits,
            jnp.split(logits, cuts, axis=-1),
            jnp.split(mask, cuts, axis=-1),
        )
        # Rows of the same length; what a choice lacks cannot be.
        rows = [
            jnp.pad(
                choice,
                ((0, 0), (0, max(self.sizes) - choice.shape[-1])),
                constant_values=-jnp.inf,
            )
            for choice in choices
        ]
        return Categorical(jnp.stack(rows, axis=1))


def _over_choices(numbers: Float[Array, " B *choices"]) -> Float[Array, " B"]:
    return jnp.sum(numbers, axis=tuple(range(1, numbers.ndim)))
