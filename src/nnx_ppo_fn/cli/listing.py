"""The command `envs`: what can be made here, and what to install for the rest."""

import shutil
import textwrap
from collections.abc import Iterator, Sequence

from .._extras import install_command
from .._suggest import did_you_mean
from ..envs.registry import families, Family, PREFIXES
from .parsing import options_class, parse
from .usage import UsageError
from .values import NAME


ABOUT = (
    "Lists the environments that can be made here, and what to install for more.\n\n"
    "With a FAMILY, lists its environments one per line."
)
BUILT_IN = "built-in"

_WIDEST = 100


def _name(prefix: str) -> str:
    """What a family is called here."""
    return prefix.removesuffix(":") or BUILT_IN


EnvsOptions = options_class(
    "EnvsOptions",
    (
        "family",
        NAME.option(
            "FAMILY",
            f"one of {', '.join(map(_name, ('', *PREFIXES)))}.",
            hint="",
            positional=True,
        ),
        None,
    ),
)


def run(arguments: Sequence[str]) -> int:
    """Reads the options, and prints the list.

    **Arguments:**

    - `arguments`: the words after `envs`.

    **Returns:**

    The exit code.
    """
    wanted = parse(EnvsOptions, arguments, command="envs", about=ABOUT).family
    known = {_name(family.prefix): family for family in families()}
    if wanted is not None:
        _print_family(known, wanted.removesuffix(":"))
        return 0
    width = min(shutil.get_terminal_size().columns, _WIDEST)
    for position, (name, family) in enumerate(known.items()):
        if position:
            print()
        for line in _description(name, family, width):
            print(line)
    return 0


def _print_family(known: dict[str, Family], wanted: str) -> None:
    if wanted not in known:
        raise UsageError(
            f"there is no family {wanted!r}{did_you_mean(wanted, known)}; the families "
            f"are {', '.join(known)}"
        )
    if not known[wanted].installed:
        command = install_command(known[wanted].extra)
        raise UsageError(f"{wanted} is not installed; run: {command}")
    print("\n".join(known[wanted].names))


def _description(name: str, family: Family, width: int) -> Iterator[str]:
    """A family in a few lines: what it is, and its names or how to get it."""
    pattern = f"{family.prefix}<id>" if family.prefix else name
    state = f"{len(family.ids)} environments" if family.installed else "not installed"
    yield f"{pattern} ({state})"
    yield from textwrap.wrap(
        family.about, width - 2, initial_indent="  ", subsequent_indent="  "
    )
    if family.installed:
        yield from textwrap.wrap(
            ", ".join(family.ids),
            width - 2,
            break_on_hyphens=False,
            initial_indent="  ",
            subsequent_indent="  ",
        )
    else:
        yield f"  to install: {install_command(family.extra)}"
