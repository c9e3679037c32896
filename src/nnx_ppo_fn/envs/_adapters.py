"""What the adapters to other libraries' environments share."""

import math
import warnings
from collections.abc import Generator, Hashable, Mapping
from contextlib import contextmanager
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import jax.tree_util as jtu
from jaxtyping import Array

from .._custom_types import PyTree
from .._tree import is_key, tree_map


Options: TypeAlias = tuple[tuple[str, Any], ...]
"""Keyword options as a value that compares and hashes: sorted pairs."""


class MissingAssetsError(ImportError):
    """The environment needs files that are not there and could not be downloaded."""


def frozen_options(owner: str, options: Mapping[str, Any]) -> Options:
    """Keyword options, in an order that does not depend on how they were written.

    **Raises:**

    `TypeError` if a value cannot be hashed.
    """
    for name, value in options.items():
        if not isinstance(value, Hashable):
            raise TypeError(
                f"{owner} needs options that can be hashed, got {name}={value!r}"
            )
    return tuple(sorted(options.items()))


@contextmanager
def leniency() -> Generator[None]:
    """Other libraries mix dtypes and ranks and call each other's deprecated functions,
    whatever modes their caller runs in."""
    with (
        jax.numpy_dtype_promotion("standard"),
        jax.numpy_rank_promotion("allow"),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore", DeprecationWarning)
        yield


def with_dtypes_of(before: PyTree, after: PyTree) -> PyTree:
    """The values of `after` as strongly typed arrays with the dtypes of `before`."""

    def cast(old: Array, new: Any) -> Array:
        return new if is_key(old) else jnp.asarray(new, old.dtype)

    return tree_map(cast, before, after)


def numbers_in(observation: PyTree) -> int:
    """How many numbers an observation holds, all of its axes and parts together."""
    return sum(math.prod(leaf.shape) for leaf in jtu.tree_leaves(observation))
