"""How words of the command line become values, and what is said where they cannot."""

import contextlib
import dataclasses
import functools as ft
import math
import operator
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, final, get_args, get_origin, Literal, Union

import tyro
from tyro.constructors import PrimitiveConstructorSpec

from .._suggest import did_you_mean
from ..algorithms.config import LoggingLevel
from .usage import UsageError


LARGEST_SEED = 2**31 - 1


@final
@dataclasses.dataclass(frozen=True)
class Kind:
    """A kind of value.

    - `metavar`: what stands for a value in the help.
    - `read`: makes a value of a word; a `ValueError` says what it must be.
    - `join`: makes one value of any number of them; `None` where there is one word.
    - `optional`: whether the word `none` stands for `None`.
    """

    metavar: str
    read: Callable[[str], Any]
    join: Callable[[Iterable[Any]], Any] | None = None
    optional: bool = False

    def option(
        self,
        flag: str,
        text: str,
        *,
        name: str | None = None,
        hint: str | None = None,
        positional: bool = False,
    ) -> Any:
        """The annotation of a field that tyro makes an option of.

        **Arguments:**

        - `flag`: what a complaint calls it, such as `--seed`; or `DIR`, positional.
        - `text`: its help.
        - `name`: of the option, where it is not the field's.
        - `hint`: what the help says in place of the default.
        - `positional`: whether it goes without a flag.
        """

        def read(words: list[Any]) -> Any:
            # Next to an unknown option, which is going to be complained about, tyro
            # has an empty list in the place of a word that is missing.
            if words == [[]]:
                return None
            if not words and not positional:
                raise UsageError(f"{flag} needs a value")
            try:
                return self._value(words)
            except ValueError as error:
                raise UsageError(f"{flag} {error}") from None

        spec = PrimitiveConstructorSpec[Any](
            nargs="*" if self.join else 1,
            metavar=flag if positional else self.metavar,
            instance_from_str=read,
            is_instance=lambda _: True,
            str_from_instance=_shown,
        )
        about = tyro.conf.arg(name=name, help=text, help_behavior_hint=hint)
        if positional:
            return Annotated[Any, spec, about, tyro.conf.Positional]
        return Annotated[Any, spec, about]

    def _value(self, words: list[str]) -> Any:
        if self.optional and words == ["none"]:
            return None
        if self.join is None:
            return self.read(words[0])
        return self.join([self.read(word) for word in words])


def switch(text: str) -> Any:
    """The annotation of a field that is False unless its option is given."""
    about = tyro.conf.arg(help=text, help_behavior_hint="")
    return Annotated[bool, about, tyro.conf.FlagCreatePairsOff]


def choice(names: Collection[str]) -> Kind:
    """One of a few names."""
    return Kind("{" + ",".join(names) + "}", ft.partial(_one_of, names=names))


def kind_of(annotation: Any) -> Kind | None:
    """The kind of value that a field of a configuration holds.

    **Arguments:**

    - `annotation`: the field's type.

    **Returns:**

    `None` for a switch, which takes no words.
    """
    if annotation is bool:
        return None
    if annotation is LoggingLevel:
        return LEVELS
    if get_origin(annotation) is Literal:
        return choice(get_args(annotation))
    if get_origin(annotation) is tuple:
        return PERCENTILES
    if get_origin(annotation) in (Union, UnionType):
        members = [each for each in get_args(annotation) if each is not type(None)]
        kind = NUMBER if float in members else kind_of(members[0])
        assert kind is not None
        optional = len(members) < len(get_args(annotation))
        return dataclasses.replace(kind, optional=optional)
    return {int: COUNT, float: NUMBER, str: NAME}[annotation]


def _whole(word: str) -> int:
    try:
        number = float(word)
        if number.is_integer():
            # Exact beyond a float's 53 bits, where the word is made of digits alone.
            return (
                int(word)
                if word.lstrip("+-").replace("_", "").isdigit()
                else int(number)
            )
    except (ValueError, OverflowError):
        pass
    raise ValueError(f"must be a whole number such as 100_000, got {word!r}")


def _count_up_to(largest: int) -> Callable[[str], int]:
    """Reads a whole number from 1 to `largest`."""

    def read(word: str) -> int:
        number = _whole(word)
        if number < 1:
            raise ValueError(f"must be at least 1, got {number}")
        if number > largest:
            raise ValueError(f"must be at most {largest}, got {number}")
        return number

    return read


def _whole_up_to(largest: int) -> Callable[[str], int]:
    """Reads a whole number from 0 to `largest`."""

    def read(word: str) -> int:
        number = _whole(word)
        if not 0 <= number <= largest:
            raise ValueError(f"must be between 0 and {largest}, got {number}")
        return number

    return read


def _number(word: str) -> float:
    try:
        number = float(word)
    except ValueError:
        number = math.nan
    # What is not finite would be the end of every training.
    if not math.isfinite(number):
        raise ValueError(f"must be a number such as 1e-3, got {word!r}")
    return number


def _positive(word: str) -> float:
    with contextlib.suppress(ValueError):
        if (number := _number(word)) > 0:
            return number
    raise ValueError(f"must be a positive number such as 1e-3, got {word!r}")


def _text(what: str, make: Callable[[str], Any] = str) -> Callable[[str], Any]:
    """Reads what may be anything but empty."""

    def read(word: str) -> Any:
        if not word.strip():
            raise ValueError(f"must be {what}, got nothing")
        return make(word)

    return read


def _level(word: str) -> LoggingLevel:
    return LoggingLevel[_one_of(word.upper(), LoggingLevel.__members__)]


def _one_of(word: str, names: Collection[str]) -> str:
    if word in names:
        return word
    hint = did_you_mean(word, names)
    raise ValueError(f"must be one of {', '.join(names)}, got {word!r}{hint}")


def _shown(value: Any) -> list[str]:
    """A default in the help, as one would write it."""
    if value is None:
        return ["none"]
    if isinstance(value, LoggingLevel):
        return [str(flag.name) for flag in value] or ["NONE"]
    if isinstance(value, tuple):
        return [str(each) for each in value]
    return [str(value)]


COUNT = Kind("N", _count_up_to(2**31 - 1))
STEPS = Kind("N", _count_up_to(2**53))
# Of which a few multiply to the size of an array.
SIZE = Kind("N", _count_up_to(2**20))
SIZES = dataclasses.replace(SIZE, join=tuple)
PIXELS = Kind("N", _count_up_to(4096))
SEED = Kind("N", _whole_up_to(LARGEST_SEED))
NUMBER = Kind("X", _number)
POSITIVE = Kind("X", _positive)
NAME = Kind("NAME", _text("a name"))
FOLDER = Kind("DIR", _text("the name of a folder", Path))
FOLDERS = dataclasses.replace(FOLDER, join=tuple)
FILE = Kind("FILE", _text("the name of a file", Path))
LEVELS = Kind(
    "NAME ...",
    _level,
    join=lambda levels: ft.reduce(operator.or_, levels, LoggingLevel.NONE),
)
PERCENTILES = Kind("N ...", _whole_up_to(100), join=tuple)
