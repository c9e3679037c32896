"""Settings as JSON has them, and back."""

import dataclasses
import enum
import functools as ft
import operator
from collections.abc import Mapping, Sequence
from typing import Any, cast, get_args, get_origin, TypeVar

import equinox as eqx
import jax
import numpy as np

from .._suggest import did_you_mean


Settings = TypeVar("Settings", bound=eqx.Module)


def as_json(settings: Any) -> Any:
    """Settings as JSON has them: objects by name, and flags as lists of names."""
    if isinstance(settings, eqx.Module):
        fields = dataclasses.fields(cast(Any, settings))
        return {one.name: as_json(getattr(settings, one.name)) for one in fields}
    if isinstance(settings, Mapping):
        named = cast(Mapping[str, Any], settings)
        return {name: as_json(value) for name, value in named.items()}
    if isinstance(settings, enum.Flag):
        return [flag.name for flag in settings]
    if isinstance(settings, (tuple, list)):
        return [as_json(item) for item in cast(Sequence[Any], settings)]
    if isinstance(settings, (jax.Array, np.ndarray, np.generic)):
        return settings.tolist()
    return settings


def from_json(owner: type[Settings], json: Any) -> Settings:
    """The settings that `as_json` was given; what is missing has its default.

    **Arguments:**

    - `owner`: the class of the settings.
    - `json`: what `as_json` returned.

    **Raises:**

    `ValueError` for names that the settings do not have, and what `owner` raises.
    """
    if not isinstance(json, Mapping):
        raise ValueError(f"expected the settings of {owner.__name__}, got {json!r}")
    written = cast(Mapping[str, Any], json)
    fields = {one.name: one.type for one in dataclasses.fields(cast(Any, owner))}
    for name in written:
        if name not in fields:
            hint = did_you_mean(name, fields)
            raise ValueError(f"{owner.__name__} has no setting {name!r}{hint}")
    values = {name: _value(fields[name], value) for name, value in written.items()}
    return owner(**values)


def _value(annotation: Any, json: Any) -> Any:
    """The value of a field, of which JSON knows fewer types than there are."""
    if isinstance(annotation, type) and issubclass(annotation, eqx.Module):
        return from_json(annotation, json)
    if isinstance(annotation, type) and issubclass(annotation, enum.Flag):
        return _flags(annotation, json)
    kinds = (annotation, *get_args(annotation))
    if isinstance(json, list) and any(get_origin(kind) is tuple for kind in kinds):
        return tuple(cast(list[Any], json))
    return json


def _flags(owner: type[enum.Flag], names: Sequence[str]) -> enum.Flag:
    for name in names:
        if name not in owner.__members__:
            hint = did_you_mean(name, owner.__members__)
            raise ValueError(f"{owner.__name__} has no {name!r}{hint}")
    return ft.reduce(operator.or_, (owner[name] for name in names), owner(0))
