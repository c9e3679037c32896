"""What populations may be called, and the entries that they take and give."""

from typing import Any

from ..types import ACTIVATION_KEY


def expect_string(what: str, given: Any) -> None:
    """Raises `TypeError` for what is no string.

    **Arguments:**

    - `what`: what is expected, for the message.
    - `given`: what came.
    """
    if not isinstance(given, str):
        raise TypeError(f"expected {what}, a string, got {given!r}")


def expect_name(name: Any) -> None:
    """Refuses a name that would mean something else in a path, or in a pattern of one.

    **Arguments:**

    - `name`: what a population shall be called.

    **Raises:**

    `TypeError` for what is no string, and `ValueError` that says what is wrong.
    """
    expect_string("the name of a population", name)
    found = [part for part in ("->", *"*./[]()") if part in name]
    if found:
        problem = f"has {found[0]!r} in it, which means something in paths"
    elif name.isdecimal():
        problem = "looks like the position of a module in a list; add a letter"
    elif name == ACTIVATION_KEY:
        problem = "is where recordings stand among metrics"
    elif not name.isprintable() or name != name.strip() or not name:
        problem = "is empty, or has blanks around it or characters that do not print"
    else:
        return
    raise ValueError(f"a population cannot be called {name!r}: the name {problem}")


def expect_entry(what: str, entry: Any) -> None:
    """Refuses what cannot be the name of an entry; it stands in no path.

    **Arguments:**

    - `what`: the argument, for the message.
    - `entry`: its value.

    **Raises:**

    `TypeError` for what is no string, and `ValueError` for an empty one.
    """
    expect_string(f"{what} to be the name of an entry", entry)
    if not entry:
        raise ValueError(f"{what} must be the name of an entry, got {entry!r}")
