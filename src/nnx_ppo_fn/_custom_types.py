"""The shapes that many signatures share.

`B` is the batch (one row per environment, or whatever the caller passes), `T` is
time. One axis is written `" B"`, with the space, to tell linters from a name.
"""

from typing import Any, TypeAlias

from jaxtyping import Array, Float, Int, Key


Keys: TypeAlias = Key[Array, " B"]
"""One typed random key per environment."""

Features: TypeAlias = Float[Array, "B ..."]
"""A feature array per environment."""

Indices: TypeAlias = Int[Array, " minibatch"]
"""Rows of a batch."""

PyTree: TypeAlias = Any
"""Any tree of arrays: a carry, an observation, an action, rollout extras."""
