"""What the program says in one line, above all where it cannot obey."""

import contextlib
import os
import sys
from collections.abc import Generator
from typing import final


PROGRAM = "nnx-ppo-fn"


@final
class UsageError(Exception):
    """The command line asks for something that cannot be done; one line says what."""


@contextlib.contextmanager
def refusing(*kinds: type[Exception], saying: str = "") -> Generator[None, None, None]:
    """A context in which errors of some kinds become a `UsageError`.

    **Arguments:**

    - `kinds`: of the errors that tell the user, not the programmer, what is wrong.
    - `saying`: what cannot be done, where the errors say only why.
    """
    try:
        yield
    except kinds as error:
        reason = in_words(error, after=saying)
        raise UsageError(f"{saying}: {reason}" if saying else reason) from error


def in_words(error: BaseException, *, after: str = "") -> str:
    """An error's message, without the number that the system's own come with.

    **Arguments:**

    - `error`: any.
    - `after`: what is said in front of it; a file named there is not named again.
    """
    if not isinstance(error, OSError) or not error.strerror:
        return str(error)
    file = "" if error.filename is None else str(error.filename)
    return error.strerror if file in after else f"{file}: {error.strerror}"


def is_lack_of_memory(error: BaseException) -> bool:
    """Whether the host or the device has too little memory."""
    return isinstance(error, MemoryError) or "RESOURCE_EXHAUSTED" in str(error)


def one_line(text: object) -> str:
    """A message in one line, however many it has."""
    return " ".join(str(text).split())


def tell(message: object) -> None:
    """Prints a line on the standard error, at once, if anybody can read it."""
    with contextlib.suppress(OSError):
        print(f"{PROGRAM}: {one_line(message)}", file=sys.stderr, flush=True)


def finish_output() -> None:
    """Prints what is left to print; from where that fails, everything goes nowhere.

    Python would try once more when it ends, and complain.
    """
    try:
        sys.stdout.flush()
    except OSError:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)
