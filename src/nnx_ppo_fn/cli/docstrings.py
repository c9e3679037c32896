"""What the settings mean, read from where it is said: the docstrings of their classes.

A class lists its fields as Markdown bullets, ``- `name`: text``; names that share a
bullet share its text. Nothing says it a second time.
"""

import inspect
import re
from collections.abc import Mapping
from typing import Any


_BULLET = re.compile(r"- ((?:`\w+`(?:, )?)+): (.+)")


def field_texts(owner: type[Any]) -> Mapping[str, str]:
    """The text of every field that the docstring of a class lists.

    **Arguments:**

    - `owner`: the class.

    **Returns:**

    Texts by the name of the field, each in one line, with their Markdown.
    """
    texts: dict[str, str] = {}
    for bullet in re.split(r"\n(?=- |\n)", inspect.getdoc(owner) or ""):
        if match := _BULLET.fullmatch(" ".join(bullet.split())):
            names, text = match.groups()
            texts |= dict.fromkeys(re.findall(r"\w+", names), text)
    return texts


def summary(owner: type[Any]) -> str:
    """The first paragraph of the docstring of a class, in one line."""
    return " ".join((inspect.getdoc(owner) or "").partition("\n\n")[0].split())


def plain(text: str) -> str:
    """A text without Markdown's backticks, for a terminal."""
    return text.replace("`", "")
