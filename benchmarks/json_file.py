"""Results as a JSON file, and back."""

import dataclasses
import json
from pathlib import Path
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

from .records import Results, times_floor, times_products


SCHEMA = 1
"""Raised when a name in the file comes to mean something else."""


def write_json(results: Results, path: Path) -> None:
    """Writes one file; folders are made."""
    path.parent.mkdir(parents=True, exist_ok=True)
    contents: dict[str, Any] = {"schema": SCHEMA, **_plain(results)}
    for plain, row in zip(contents["rows"], results.rows, strict=True):
        plain["times_floor"] = times_floor(row, results.device)
        plain["times_products"] = times_products(row)
    path.write_text(json.dumps(contents, indent=2) + "\n")


def read_json(path: Path) -> Results:
    """The results that `write_json` wrote.

    **Raises:**

    `ValueError` where another version of the benchmark has written the file.
    """
    contents = json.loads(path.read_text())
    if contents.get("schema") != SCHEMA:
        raise ValueError(
            f"{path} has schema {contents.get('schema')}, expected {SCHEMA}; "
            "run the benchmark again"
        )
    return _made(Results, contents)


def _plain(value: Any) -> Any:
    """Records as dictionaries, tuples as lists, the rest as it is."""
    names = _names(type(value))
    if names:
        return {name: _plain(getattr(value, name)) for name in names}
    if isinstance(value, dict):
        return {name: _plain(entry) for name, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(entry) for entry in value]
    return str(value) if isinstance(value, Path) else value


def _made(kind: Any, plain: Any) -> Any:
    """The inverse of `_plain`, for a value of a known type."""
    if plain is None:
        return None
    arguments = get_args(kind)
    if get_origin(kind) is UnionType:
        (kind,) = (one for one in arguments if one is not type(None))
    names = _names(kind)
    if names:
        hints = get_type_hints(kind)
        # An older file has no entry for what was not measured then.
        return kind(
            **{name: _made(hints[name], plain[name]) for name in names if name in plain}
        )
    if get_origin(kind) in (list, tuple):
        return get_origin(kind)(_made(arguments[0], entry) for entry in plain)
    return Path(plain) if kind is Path else plain


def _names(kind: Any) -> tuple[str, ...]:
    """The fields of a dataclass or of a named tuple."""
    if dataclasses.is_dataclass(kind):
        return tuple(field.name for field in dataclasses.fields(kind))
    return getattr(kind, "_fields", ())
