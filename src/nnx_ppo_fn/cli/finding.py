"""Finds what `package.module:object` names in the user's code, and makes a module."""

import functools as ft
import importlib
import importlib.util
import inspect
import os
import sys
import traceback
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import equinox as eqx
from jaxtyping import Array, Key

from .._suggest import did_you_mean
from ..networks.types import StatefulModule
from .usage import is_lack_of_memory, UsageError


_EXAMPLE = "such as my.layers:Noise"


def find(place: str) -> Any:
    """What `package.module:object` names, found from the current folder.

    **Raises:**

    `UsageError` where there is nothing of this name, or importing it fails.
    """
    path, colon, name = place.partition(":")
    if path.endswith(".py"):
        dotted = ".".join(Path(path).with_suffix("").parts)
        raise UsageError(
            f"expected a module rather than a file; write {dotted}:{name or 'object'}"
        )
    if not (colon and name and all(map(str.isidentifier, path.split(".")))):
        raise UsageError(f"expected package.module:object, {_EXAMPLE}, got {place!r}")
    # First, as where Python itself is started on a file: the folder is the project's.
    sys.path.insert(0, os.getcwd())
    found, seen = _import(path), path
    for position, part in enumerate(name.split(".")):
        found = _member(found, part, seen)
        seen += f".{part}" if position else f":{part}"
    return found


def made(
    found: Any, place: str, key: Key[Array, ""], sizes: Mapping[str, int]
) -> tuple[Any, Any]:
    """The module, and its example where it comes with one.

    **Arguments:**

    - `found`: a module, a function or class that makes one, or a pair of either and
      an example.
    - `place`: where it was found.
    - `key`: to make it from.
    - `sizes`: what is known of its environment, for arguments of these names.

    **Raises:**

    `UsageError` where it is none of these, or fails to make a module.
    """
    module, example = _pair(found)
    kind, verb = _kind(module), "is"
    if _is_maker(module):
        module, with_it = _pair(_call(module, place, key, sizes))
        example = with_it if example is None else example
        kind, verb = _kind(module), "makes"
    if isinstance(module, StatefulModule):
        return module, example
    if isinstance(module, eqx.Module):
        raise UsageError(
            f"{place} {verb} an equinox module that knows nothing of batches and "
            f"carries, {kind}; wrap it: Stateless(jax.vmap(...))"
        )
    raise UsageError(
        f"{place} {verb} {kind}; expected a module, or a function that makes one from "
        "a key"
    )


def failure(error: BaseException) -> str:
    """What an error in the user's code says, and the line that it comes from."""
    first = next(iter(str(error).strip().splitlines()), "")
    message = f"{type(error).__name__}: {first}" if first else type(error).__name__
    line = "" if isinstance(error, SyntaxError) else _line(error)
    return f"{message} ({line})" if line else message


def _line(error: BaseException) -> str:
    """The last line of the user's own that an error has passed, as `file:line`."""
    here, library = Path.cwd(), Path(__file__).parent.parent
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        file = Path(frame.filename)
        installed = "site-packages" in file.parts or file.is_relative_to(library)
        if file.is_relative_to(here) and not installed:
            return f"{file.relative_to(here)}:{frame.lineno}"
    return ""


def _member(owner: Any, name: str, seen: str) -> Any:
    try:
        return getattr(owner, name)
    except AttributeError:
        if isinstance(owner, ModuleType) and hasattr(owner, "__path__"):
            # A package has the modules in it only when they are imported.
            within = f"{owner.__name__}.{name}"
            if name.isidentifier() and importlib.util.find_spec(within) is not None:
                return _import(within)
        names = [name for name in dir(owner) if not name.startswith("_")]
        raise UsageError(f"{seen} has no {name!r}{did_you_mean(name, names)}") from None
    except Exception as error:
        raise UsageError(f"{seen}.{name} failed: {failure(error)}") from error


def _import(path: str) -> Any:
    try:
        return importlib.import_module(path)
    except ModuleNotFoundError as error:
        missing = error.name or path
        if missing != path and not path.startswith(f"{missing}."):
            # The module is there, and imports what is not.
            raise UsageError(f"{path} cannot be imported: {failure(error)}") from error
        parent, _, last = missing.rpartition(".")
        # A module that is not a package has no path.
        inside = getattr(sys.modules.get(parent), "__path__", ())
        folders = inside if parent else sys.path[:1]
        names = [
            Path(name).stem
            for folder in folders
            if os.path.isdir(folder)
            for name in os.listdir(folder)
        ]
        raise UsageError(
            f"there is no module {missing!r}{did_you_mean(last, names)}"
        ) from None
    except (Exception, SystemExit) as error:
        raise UsageError(f"{path} cannot be imported: {failure(error)}") from error


def _is_maker(found: Any) -> bool:
    """Whether it is to be called: a function, however wrapped, or a class."""
    return (
        inspect.isroutine(found)
        or isinstance(found, (type, ft.partial))
        or (callable(found) and hasattr(found, "__wrapped__"))
    )


def _call(
    function: Any, place: str, key: Key[Array, ""], sizes: Mapping[str, int]
) -> Any:
    """What a function makes from a key and sizes, or a class that needs no other."""
    try:
        parameters = inspect.signature(function).parameters
        needed = [
            name
            for name, parameter in parameters.items()
            if parameter.default is parameter.empty
            and parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
        ]
        if needed in ([], ["key"]):
            return function(**({"key": key} if "key" in parameters else {}))
        if set(needed) <= {"key", *sizes}:
            given = {name: sizes[name] for name in needed if name in sizes}
            return function(**given, **({"key": key} if "key" in parameters else {}))
        if len(needed) == 1 and not isinstance(function, type):
            return function(key)
    except Exception as error:
        if is_lack_of_memory(error):
            raise
        raise UsageError(f"{place} failed: {failure(error)}") from error
    raise UsageError(
        f"{place} needs {', '.join(needed)}; write a function that makes the module "
        "from a key alone, or from what --env knows (observation_size, action_size and "
        "key), and name that"
    )


def _pair(found: Any) -> tuple[Any, Any]:
    if isinstance(found, tuple) and len(found) == 2:
        return found
    return found, None


def _kind(found: Any) -> str:
    """What something is, with its article."""
    name = type(found).__name__
    return f"{'an' if name[0] in 'AEIOUaeiou' else 'a'} {name}"
