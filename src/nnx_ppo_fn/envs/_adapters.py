"""What the adapters to other libraries' environments share."""

import inspect
import math
import warnings
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from numbers import Real
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import jax.tree_util as jtu
import numpy as np
from jaxtyping import Array

from .._custom_types import PyTree
from .._suggest import did_you_mean
from .._tree import is_key, shape_text, tree_map


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
        try:
            hash(value)
        except TypeError:
            raise TypeError(
                f"{owner} needs options that can be hashed, such as numbers and "
                f"tuples, got {name}={_in_one_line(value)}"
            ) from None
    return tuple(sorted(options.items()))


def defaults_of(constructor: Callable[..., Any]) -> dict[str, Any] | None:
    """The keyword options of a class or function, with their defaults.

    Where a class passes on what it does not know itself, those of its bases as well.

    **Returns:**

    `inspect.Parameter.empty` for an option without a default; `None` where there is no
    telling, since a function passes options on to others.
    """
    if not isinstance(constructor, type):
        defaults, is_open = _signature(constructor)
        return None if is_open else defaults
    defaults: dict[str, Any] = {}
    for base in constructor.__mro__:
        if base is not object and "__init__" in vars(base):
            own, is_open = _signature(base.__init__)
            defaults = own | defaults
            if not is_open:
                break
    defaults.pop("self", None)
    return defaults


def check_options(
    owner: str, options: Mapping[str, Any], defaults: Mapping[str, Any]
) -> None:
    """Refuses options that there are not, and values of another kind than expected.

    **Arguments:**

    - `owner`: the name of the environment.
    - `options`: what was given.
    - `defaults`: every option that there is, with the value that it has otherwise. A
      number, a bool or a string must be given as such.

    **Raises:**

    `TypeError`.
    """
    known = {*defaults, "max_episode_length"}
    for name, value in options.items():
        if name not in known:
            raise TypeError(
                f"{owner} has no option {name!r}{did_you_mean(name, sorted(known))}"
            )
        kind, words = _kind(defaults.get(name))
        if not isinstance(value, kind):
            raise TypeError(
                f"{owner} needs {name} to be {words}, got {_in_one_line(value)}"
            )


def _signature(function: Callable[..., Any]) -> tuple[dict[str, Any], bool]:
    """The named parameters with their defaults, and whether others are taken too."""
    parameters = inspect.signature(function).parameters.values()
    variable = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    named = {one.name: one.default for one in parameters if one.kind not in variable}
    return named, any(one.kind is inspect.Parameter.VAR_KEYWORD for one in parameters)


def _kind(default: Any) -> tuple[type | tuple[type, ...], str]:
    """What may stand in the place of a default, and what that is called."""
    if isinstance(default, (bool, np.bool_)):
        return (bool, np.bool_), "True or False"
    if isinstance(default, Real):
        return Real, "a number"
    return (str, "a string") if type(default) is str else (object, "anything")


def _in_one_line(value: Any) -> str:
    if hasattr(value, "shape"):
        return f"an array {shape_text(value)}"
    return " ".join(repr(value).split())


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
