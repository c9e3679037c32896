"""Writes files whole or not at all."""

import contextlib
import os
from collections.abc import Generator
from pathlib import Path


@contextlib.contextmanager
def replacing(path: Path) -> Generator[Path, None, None]:
    """A context that writes a file; a reader never sees half of it.

    **Arguments:**

    - `path`: of the file. What is there stays if writing fails.

    **Returns:**

    Where to write it: beside `path`, in a file that goes to `path` at the end.

    **Raises:**

    `OSError` where it cannot be written. Then there is nothing left of it.
    """
    unfinished = path.with_name(f"{path.name}.part")
    try:
        yield unfinished
        unfinished.replace(path)
    except BaseException as error:
        with contextlib.suppress(OSError):
            unfinished.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.filename is not None:
            error.filename = str(path)
        raise


def expect_place(path: Path) -> None:
    """Raises unless a file can be at `path`.

    **Raises:**

    `OSError`, of one sentence.
    """
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder. Choose another name.")
    expect_folder(path.parent)


def expect_folder(path: Path) -> None:
    """Raises unless `path` is a folder to write into, or one that can be made.

    **Raises:**

    `NotADirectoryError` or `PermissionError`, of one sentence.
    """
    nearest = next(place for place in (path, *path.parents) if place.exists())
    if not nearest.is_dir():
        inside = "" if nearest == path else f", so {path} cannot be inside it"
        raise NotADirectoryError(
            f"{nearest} is not a folder but a file{inside}. Choose another folder."
        )
    if not os.access(nearest, os.W_OK | os.X_OK):
        raise PermissionError(
            f"{nearest} cannot be written into. Choose another folder."
        )
