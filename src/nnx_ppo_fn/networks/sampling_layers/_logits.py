"""Logits, with or without a mask of what is allowed."""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from ..._expect import is_real
from ..._tree import entries, shape_text
from .._errors import CompositionError


IMPOSSIBLE = -1e30
"""The log-probability of what cannot happen.

It is finite, since the product of minus infinity and a probability of 0 would be NaN,
and so would its gradient; sums of many are finite too. `exp` of it is exactly 0.
"""

_LARGEST = float(jnp.finfo(jnp.float32).max)


def read_logits(x: Any) -> tuple[Float[Array, "B n"], Bool[Array, "B n"]]:
    """Logits in `float32`, and a mask that allows everything unless there is one.

    **Arguments:**

    - `x`: logits `[B, n]`, or a tree whose parts are `logits` and `mask`: a mapping, a
      named tuple or a dataclass.

    **Raises:**

    `CompositionError` for anything else.
    """
    parts = entries(x)
    if parts is None:
        logits = _expect_logits(x)
        return logits, jnp.ones_like(logits, bool)
    if set(parts) != {"logits", "mask"}:
        raise CompositionError(
            'expected logits [B, n] or a mapping with "logits" and "mask", got one '
            f"with {sorted(parts)}"
        )
    logits = _expect_logits(parts["logits"])
    return logits, _expect_mask(parts["mask"], logits)


def allowed_logits(
    logits: Float[Array, "... n"], mask: Bool[Array, "... n"]
) -> Float[Array, "... n"]:
    """Minus infinity where the mask forbids; a mask that allows nothing is ignored.

    Where every logit that is left is minus infinity they become 0, all alike, so that
    there always is a choice.
    """
    allowed = mask | ~jnp.any(mask, axis=-1, keepdims=True)
    masked = jnp.where(allowed, logits, -jnp.inf)
    none_left = jnp.all(masked == -jnp.inf, axis=-1, keepdims=True)
    return jnp.where(none_left & allowed, 0.0, masked)


def log_probabilities(logits: Float[Array, "... n"]) -> Float[Array, "... n"]:
    """Those of a softmax over the last axis, `IMPOSSIBLE` for what is.

    Where logits are infinite, they share all the probability.
    """
    log_softmax = jax.nn.log_softmax(jnp.minimum(logits, _LARGEST), axis=-1)
    return jnp.maximum(log_softmax, IMPOSSIBLE)


def entropy_of(log_probabilities: Float[Array, "... n"]) -> Float[Array, "..."]:
    """The entropy of the choice along the last axis."""
    return 0.0 - jnp.sum(jnp.exp(log_probabilities) * log_probabilities, axis=-1)


def _expect_logits(logits: Any) -> Float[Array, "B n"]:
    shape = getattr(logits, "shape", ())
    if len(shape) != 2 or not shape[-1]:
        raise CompositionError(
            f"expected logits [B, n] of at least one, got {shape_text(logits)}"
        )
    return jnp.asarray(logits, jnp.float32)


def _expect_mask(mask: Any, logits: Float[Array, "B n"]) -> Bool[Array, "B n"]:
    dtype, shape = getattr(mask, "dtype", None), getattr(mask, "shape", None)
    if shape == logits.shape and dtype == jnp.bool_:
        return jnp.asarray(mask)
    got = type(mask).__name__ if dtype is None else f"{dtype} {shape_text(mask)}"
    fixable = shape == logits.shape and is_real(mask)
    raise CompositionError(
        f"expected a boolean mask {shape_text(logits)} like the logits, got {got}"
        + ("; write mask > 0" if fixable else "")
    )
