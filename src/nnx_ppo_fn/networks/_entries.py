"""Inputs with named parts."""

from collections.abc import Collection
from typing import Any

from .._suggest import did_you_mean
from .._tree import entries, shape_text
from ._errors import CompositionError


def entries_for(names: Collection[str], x: Any, whom: str) -> dict[str, Any]:
    """The entries of `x`, if there is one for each name and no other.

    **Arguments:**

    - `names`: the names that are wanted.
    - `x`: what should be a mapping, a named tuple or a dataclass.
    - `whom`: what the entries are for, in the singular, for the message.

    **Raises:**

    `CompositionError` that names an entry that is missing, or for nobody.
    """
    known = ", ".join(map(repr, names))
    parts = entries(x)
    if parts is None:
        what = "sequence" if isinstance(x, tuple | list) else type(x).__name__
        advice = (
            "; Filter({'name': (0,)}) names the parts of a sequence"
            if isinstance(x, tuple | list)
            else ""
        )
        raise CompositionError(
            f"expected a mapping with the entries {known}, got {what} "
            f"{shape_text(x)}{advice}"
        )
    problems = [
        f"{name!r} is missing{did_you_mean(name, map(str, parts))}"
        for name in names
        if name not in parts
    ]
    problems += [
        f"{name!r} is for no {whom} (Filter drops entries)"
        for name in parts
        if name not in names
    ]
    if problems:
        raise CompositionError(
            f"expected a mapping with the entries {known}; {', '.join(problems)}"
        )
    return parts
