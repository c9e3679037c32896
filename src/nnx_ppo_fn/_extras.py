"""Imports what only an extra installs."""

import importlib
from typing import Any, final


@final
class MissingPackageError(ImportError):
    """A package is needed that is not installed."""


def import_extra(name: str, *, extra: str, purpose: str) -> Any:
    """The module `name`, imported now.

    **Arguments:**

    - `name`: dotted, as in an import statement.
    - `extra`: the extra of this package that installs it.
    - `purpose`: what it is needed for, to begin a sentence with.

    **Raises:**

    `MissingPackageError`, an `ImportError`, that says what to install.
    """
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        package = (error.name or name).split(".")[0]
        raise MissingPackageError(
            f"{purpose} needs the package {package!r}, which is not installed; run: "
            f'pip install "nnx_ppo_fn[{extra}]"'
        ) from error
