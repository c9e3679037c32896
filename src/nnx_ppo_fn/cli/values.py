"""How words of the command line become values, and what is said where they cannot."""

import dataclasses
import math
from collections.abc import Callable, Collection
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
    - `read`: makes a value of its words; a `ValueError` says what they must be.
    - `several`: whether a value has any number of words rather than one.
    """

    metavar: str
    read: Callable[[list[str]], Any]
    several: bool = False

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
            try:
                return self.read(words)
            except ValueError as error:
                raise UsageError(f"{flag} {error}") from None

        spec = PrimitiveConstructorSpec[Any](
            nargs="*" if self.several else 1,
            metavar=flag if positional else self.metavar,
            instance_from_str=read,
            is_instance=lambda _: True,
            str_from_instance=_shown,
        )
        about = tyro.conf.arg(name=name, help=text, help_behavior_hint=hint)
        if positional:
            return Annotated[Any, spec, about, tyro.conf.Positional]
        return Annotated[Any, spec, about]


def switch(text: str) -> Any:
    """The annotation of a field that is False unless its option is given."""
    about = tyro.conf.arg(help=text, help_behavior_hint="")
    return Annotated[bool, about, tyro.conf.FlagCreatePairsOff]


def choice(names: Collection[str]) -> Kind:
    """One of a few names."""

    def read(words: list[str]) -> str:
        return _expect_name(words[0], names)

    return Kind("{" + ",".join(names) + "}", read)


def or_none(kind: Kind) -> Kind:
    """A kind whose value may also be `none`."""
    return dataclasses.replace(
        kind, read=lambda words: None if words == ["none"] else kind.read(words)
    )


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
        return or_none(kind) if len(members) < len(get_args(annotation)) else kind
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


def _count(words: list[str]) -> int:
    number = _whole(words[0])
    if number < 1:
        raise ValueError(f"must be at least 1, got {number}")
    return number


def _counts(words: list[str]) -> tuple[int, ...]:
    return tuple(_count([word]) for word in words)


def _seed(words: list[str]) -> int:
    number = _whole(words[0])
    if not 0 <= number <= LARGEST_SEED:
        raise ValueError(f"must be between 0 and {LARGEST_SEED}, got {number}")
    return number


def _number(words: list[str]) -> float:
    try:
        return float(words[0])
    except ValueError:
        raise ValueError(f"must be a number such as 1e-3, got {words[0]!r}") from None


def _positive(words: list[str]) -> float:
    try:
        number = float(words[0])
    except ValueError:
        number = math.nan
    if not 0 < number < math.inf:
        raise ValueError(f"must be a positive number such as 1e-3, got {words[0]!r}")
    return number


def _name(words: list[str]) -> str:
    if not words[0].strip():
        raise ValueError("must be a name, got nothing")
    return words[0]


def _path(words: list[str]) -> Path:
    if not words[0].strip():
        raise ValueError("must be the name of a folder, got nothing")
    return Path(words[0])


def _file(words: list[str]) -> Path:
    if not words[0].strip():
        raise ValueError("must be the name of a file, got nothing")
    return Path(words[0])


def _levels(words: list[str]) -> LoggingLevel:
    level = LoggingLevel.NONE
    for word in words:
        name = _expect_name(word.upper(), LoggingLevel.__members__)
        level |= LoggingLevel[name]
    return level


def _percentiles(words: list[str]) -> tuple[int, ...]:
    numbers = tuple(_whole(word) for word in words)
    wrong = [number for number in numbers if not 0 <= number <= 100]
    if wrong:
        raise ValueError(f"must be between 0 and 100, got {wrong[0]}")
    return numbers


def _expect_name(word: str, names: Collection[str]) -> str:
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


COUNT = Kind("N", _count)
COUNTS = Kind("N", _counts, several=True)
SEED = Kind("N", _seed)
NUMBER = Kind("X", _number)
POSITIVE = Kind("X", _positive)
NAME = Kind("NAME", _name)
FOLDER = Kind("DIR", _path)
FOLDERS = Kind("DIR", lambda words: tuple(_path([word]) for word in words), True)
FILE = Kind("FILE", _file)
LEVELS = Kind("NAME ...", _levels, several=True)
PERCENTILES = Kind("N ...", _percentiles, several=True)
