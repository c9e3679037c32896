"""The nearest name, for errors about names that are not there."""

from collections.abc import Iterable
from difflib import get_close_matches


def did_you_mean(name: str, names: Iterable[str]) -> str:
    """A hint to append to the sentence that says that there is no `name`.

    **Arguments:**

    - `name`: what was asked for.
    - `names`: what there is.

    **Returns:**

    `" (did you mean 'cartpole'?)"` with the nearest of the names, or nothing where none
    is near.
    """
    alike = {one.casefold(): one for one in names}
    matches = get_close_matches(name.casefold(), list(alike), n=1, cutoff=0.4)
    return f" (did you mean {alike[matches[0]]!r}?)" if matches else ""
