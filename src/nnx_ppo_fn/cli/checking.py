"""The command `check`: the laws on a module of one's own."""

import importlib
import inspect
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import jax.random as jr
from jaxtyping import Array, Key

from .._keys import derive, one_per_environment
from .._suggest import did_you_mean
from ..envs.registry import make
from ..networks._errors import CompositionError
from ..networks.types import StatefulModule
from ..testing.check_module import check_module
from ..testing.static import check_structure
from ..testing.violation import LAWS, LawViolation
from .parsing import options_class, parse
from .usage import refusing, UsageError
from .values import COUNT, COUNTS, NAME, SEED


ABOUT = "Checks that a module obeys the laws, so that PPO may slice its experience."

CheckOptions = options_class(
    "CheckOptions",
    (
        "place",
        NAME.option(
            "OBJECT",
            "package.module:object, found from the current folder: a module, or a "
            "function that makes one from a key, or a pair of either and an example "
            "of what it takes.",
            hint="",
            positional=True,
        ),
        None,
    ),
    (
        "features",
        COUNTS.option(
            "--features",
            "try it on random numbers: this many per row, or an array of these sizes.",
            hint="",
        ),
        (),
    ),
    (
        "env",
        NAME.option("--env", "try it on observations of this environment.", hint=""),
        None,
    ),
    ("batch", COUNT.option("--batch", "rows of the example, at least 4."), 8),
    ("seed", SEED.option("--seed", "of weights and examples."), 0),
)


def run(arguments: Sequence[str]) -> int:
    """Reads the options, finds the module, and checks it.

    **Arguments:**

    - `arguments`: the words after `check`.

    **Returns:**

    The exit code: 0 where every law holds, 1 where one is broken.
    """
    options = parse(CheckOptions, arguments, command="check", about=ABOUT)
    if options.place is None:
        raise UsageError("which module? For example: nnx-ppo-fn check my.layers:Noise")
    key = jr.key(options.seed)
    module, example = _made(_find(options.place), options.place, derive(key, "module"))
    if example is None:
        example = _example(options, derive(key, "example"))
    with refusing(ValueError, TypeError):
        # Of no laws: that the example can be tested with at all.
        check_module(module, example, key=key, laws=())
    try:
        with refusing(CompositionError):
            # Cheap, and all of it first: what runs below relies on shapes that fit.
            check_structure(module, example)
            for law in LAWS:
                check_module(module, example, key=derive(key, "check"), laws=[law])
                print(f"held  {law}", flush=True)
    except LawViolation as violation:
        print(violation, file=sys.stderr)
        return 1
    return 0


def _find(place: str) -> Any:
    """What `package.module:object` names."""
    path, colon, name = place.partition(":")
    if not (colon and name and all(map(str.isidentifier, path.split(".")))):
        raise UsageError(
            f"expected package.module:object, such as my.layers:Noise, got {place!r}"
        )
    # First, as where Python itself is started on a file: the folder is the project's.
    sys.path.insert(0, os.getcwd())
    found = _import(path)
    for part in name.split("."):
        if not hasattr(found, part):
            names = [name for name in dir(found) if not name.startswith("_")]
            raise UsageError(f"{path} has no {part!r}{did_you_mean(part, names)}")
        found = getattr(found, part)
    return found


def _import(path: str) -> Any:
    try:
        return importlib.import_module(path)
    except ModuleNotFoundError as error:
        missing = error.name or path
        if missing != path and not path.startswith(f"{missing}."):
            # The module is there, and imports what is not.
            raise UsageError(f"{path} cannot be imported: {error}") from error
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


def _made(found: Any, place: str, key: Key[Array, ""]) -> tuple[Any, Any]:
    """The module, and its example where it comes with one."""
    module, example = _pair(found)
    if not isinstance(module, StatefulModule) and callable(module):
        module, with_it = _pair(_call(module, place, key))
        example = with_it if example is None else example
    if not isinstance(module, StatefulModule):
        raise UsageError(
            f"{place} is not a module, nor a function that makes one from a key, but "
            f"a {type(module).__name__}"
        )
    return module, example


def _call(function: Any, place: str, key: Key[Array, ""]) -> Any:
    """What a function makes from a key, or a class that needs nothing else."""
    parameters = inspect.signature(function).parameters
    needed = [
        name
        for name, parameter in parameters.items()
        if parameter.default is parameter.empty
        and parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    ]
    if needed in ([], ["key"]):
        return function(**({"key": key} if "key" in parameters else {}))
    if len(needed) == 1 and not isinstance(function, type):
        return function(key)
    raise UsageError(
        f"{place} needs {', '.join(needed)}; write a function that makes the module "
        "from a key alone, and name that"
    )


def _pair(found: Any) -> tuple[Any, Any]:
    if isinstance(found, tuple) and len(found) == 2:
        return found
    return found, None


def _example(options: Any, key: Key[Array, ""]) -> Any:
    if options.env is not None:
        with refusing(ValueError, ImportError):
            env = make(options.env)
        return jax.vmap(env.reset)(one_per_environment(key, options.batch)).obs
    if options.features:
        return jr.normal(key, (options.batch, *options.features))
    raise UsageError(
        "what does it take? Say --features 4 for rows of 4 numbers, --env cartpole for "
        "an environment's observations, or let the object be (module, example)"
    )
