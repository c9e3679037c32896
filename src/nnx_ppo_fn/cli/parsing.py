"""One way to parse for all commands: by tyro, with complaints of one line."""

import contextlib
import dataclasses
import io
import re
from collections.abc import Iterator, Sequence
from typing import Any, get_args, TypeVar

import tyro

from .._suggest import did_you_mean
from .usage import one_line, PROGRAM, UsageError


Options = TypeVar("Options")

_FRAME = "│|╭╮╰╯+ "
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")


def options_class(name: str, *options: tuple[str, Any, Any]) -> type[Any]:
    """A dataclass whose fields are options.

    **Arguments:**

    - `name`: of the class.
    - `options`: `(name, annotation, default)` of each field; `dataclasses.MISSING`
      where there is no default.
    """
    fields = [
        (field, annotation, dataclasses.field(default=default, kw_only=True))
        for field, annotation, default in options
    ]
    return dataclasses.make_dataclass(name, fields)


def parse(
    options: type[Options],
    arguments: Sequence[str],
    *,
    command: str,
    about: str,
    default: Options | None = None,
) -> Options:
    """Reads the options of a command.

    **Arguments:**

    - `options`: a dataclass; each field is an option.
    - `arguments`: the words after the command.
    - `command`: its name; nothing for the program itself.
    - `about`: what it does, for the help: paragraphs that fit into 80 columns, since
      tyro does not break them.
    - `default`: holds the defaults, if `options` itself does not.

    **Raises:**

    - `UsageError` where an option is unknown or has an impossible value.
    - `SystemExit` after `--help`.
    """
    _expect_bare_switches(options, arguments)
    complaint = io.StringIO()
    try:
        with contextlib.redirect_stderr(complaint):
            parsed, unknown = tyro.cli(
                options,
                prog=f"{PROGRAM} {command}".strip(),
                description=about,
                args=arguments,
                default=tyro.MISSING_NONPROP if default is None else default,
                return_unknown_args=True,
            )
    except SystemExit as end:
        if end.code:
            raise UsageError(_first_paragraph(complaint.getvalue())) from None
        raise
    if unknown:
        first = unknown[0].partition("=")[0]
        hint = did_you_mean(first, flags(options)) if first.startswith("-") else ""
        raise UsageError(f"unrecognized arguments: {' '.join(unknown)}{hint}")
    return parsed


def flags(options: Any) -> Iterator[str]:
    """All options of a dataclass, such as `--n-envs` and `--eval.n-envs`."""
    return (flag for flag, _ in _options(options))


def _expect_bare_switches(options: Any, arguments: Sequence[str]) -> None:
    """Refuses `--switch=value`, of which tyro would make two words."""
    switches = {flag for flag, kind in _options(options) if kind is bool}
    for given, equals, value in (word.partition("=") for word in arguments):
        flag = re.sub(r"^(--.*\.|--)no-", r"\1", given.replace("_", "-"))
        if equals and flag in switches:
            raise UsageError(f"{given} takes no value, got {value!r}")


def _options(options: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """All options of a dataclass, and what each of them holds."""
    for field in dataclasses.fields(options):
        kind, *marks = get_args(field.type) or (field.type,)
        if dataclasses.is_dataclass(kind):
            is_named = tyro.conf.OmitArgPrefixes not in marks
            yield from _options(kind, f"{prefix}{field.name}." if is_named else prefix)
        elif tyro.conf.Positional not in marks:
            yield "--" + (prefix + field.name).replace("_", "-"), kind


def _first_paragraph(box: str) -> str:
    """What a box of tyro's says below its title, up to its next rule."""
    _, *lines = (line.strip(_FRAME) for line in _COLOURS.sub("", box).splitlines())
    paragraph: list[str] = []
    for line in lines:
        if line.strip("─-"):
            paragraph.append(line)
        elif paragraph:
            break
    complaint = one_line(" ".join(paragraph))
    missing = re.match(r"Missing value for argument '(.+?)'", complaint)
    return f"{missing[1]} needs a value" if missing else complaint
