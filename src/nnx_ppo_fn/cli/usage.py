"""What the program says in one line, above all where it cannot obey."""

import contextlib
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
        reason = str(error)
        if saying:
            # The system's own errors come with a number.
            reason = getattr(error, "strerror", None) or reason
            reason = f"{saying}: {reason}"
        raise UsageError(reason) from error


def one_line(text: object) -> str:
    """A message in one line, however many it has."""
    return " ".join(str(text).split())


def tell(message: object) -> None:
    """Prints a line on the standard error, at once."""
    print(f"{PROGRAM}: {one_line(message)}", file=sys.stderr, flush=True)
