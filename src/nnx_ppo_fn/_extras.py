"""Imports what only an extra installs."""

import importlib
from typing import Any, final


@final
class MissingExtraError(ImportError):
    """A package is needed that is not installed."""


def import_extra(
    name: str, *, extra: str, purpose: str, package: str | None = None
) -> Any:
    """The module `name`, imported now.

    **Arguments:**

    - `name`: dotted, as in an import statement.
    - `package`: what a name that begins with a dot is relative to.
    - `extra`: the extra of this package that installs it.
    - `purpose`: what it is needed for, to begin a sentence with.

    **Raises:**

    `MissingExtraError`, an `ImportError`, that says what to install.
    """
    try:
        return importlib.import_module(name, package)
    except ModuleNotFoundError as error:
        missing = (error.name or name).split(".")[0]
        raise MissingExtraError(
            f"{purpose} needs the package {missing!r}, which is not installed; run: "
            f"{install_command(extra)}"
        ) from error


def install_command(extra: str) -> str:
    """What to type into a shell for an extra of this package."""
    return f'pip install "nnx_ppo_fn[{extra}]"'
