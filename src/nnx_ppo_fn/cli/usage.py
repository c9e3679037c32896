"""The error of a command line that cannot be obeyed."""

from typing import final


@final
class UsageError(Exception):
    """The command line asks for something that cannot be done; one line says what."""


def one_line(text: object) -> str:
    """A message in one line, however many it has."""
    return " ".join(str(text).split())
