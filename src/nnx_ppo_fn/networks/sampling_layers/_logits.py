"""Logits, with or without a mask of what is allowed."""

from collections.abc import Mapping
from typing import Any, cast

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from ..._tree import shape_text
from .._errors import CompositionError


IMPOSSIBLE = -1e30
"""The log-probability of what cannot happen.

It is finite, since the product of minus infinity and a probability of 0 would be NaN,
and so would its gradient; sums of many are finite too. `exp` of it is exactly 0.
"""


def read_logits(x: Any) -> tuple[Float[Array, "B n"], Bool[Array, "B n"] | None]:
    """Logits in `float32`, and the mask if there is one.

    **Arguments:**

    - `x`: logits `[B, n]`, or a mapping with `"logits"` and `"mask"`.

    **Raises:**

    `CompositionError` for anything else.
    """
    if not isinstance(x, Mapping):
        return _expect_logits(x), None
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
    return logits, mask


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
    """Those of a softmax over the last axis, `IMPOSSIBLE` for what is."""
    return jnp.maximum(jax.nn.log_softmax(logits, axis=-1), IMPOSSIBLE)


def entropy_of(log_probabilities: Float[Array, "... n"]) -> Float[Array, "..."]:
    """The entropy of the choice along the last axis."""
    return -jnp.sum(jnp.exp(log_probabilities) * log_probabilities, axis=-1)


def _expect_logits(logits: Any) -> Float[Array, "B n"]:
    if getattr(logits, "ndim", None) != 2:
        raise CompositionError(f"expected logits [B, n], got {shape_text(logits)}")
    return logits.astype(jnp.float32)
