"""The entry point: finds the command, and turns errors into exit codes."""

import importlib
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec

from .usage import (
    finish_output,
    in_words,
    is_lack_of_memory,
    PROGRAM,
    tell,
    UsageError,
)


_COMMANDS: Mapping[str, tuple[str, str]] = {
    "train": ("training", "train a policy and write a run folder"),
    "eval": ("evaluation", "play episodes with a trained policy, and film one"),
    "plot": ("comparison", "compare runs: mean and spread over their seeds"),
    "envs": ("listing", "list the environments, and what to install for more"),
    "check": ("checking", "check that a module of your own obeys the laws"),
}
"""The module in which a command's `run` is, and what the command is for."""

_EXTRA = ("tyro", "rich", "matplotlib")


def main(arguments: list[str] | None = None) -> int:
    """Runs a command.

    **Arguments:**

    - `arguments`: the words after the program's name; `None` takes the process's own.

    **Returns:**

    The exit code: 0 where the command did what it says; 1 where training met a fault,
    a module breaks a law, or memory or a disk is full; 2 where it was not possible to
    begin; 130 where Ctrl-C ended it.
    """
    _expect_streams()
    try:
        words = sys.argv[1:] if arguments is None else arguments
        _expect_extra()
        command = _find(words[:1])
        code = 0 if command is None else command(words[1:])
        # Now, since Python would only complain at its end of what cannot be printed.
        sys.stdout.flush()
        return code
    except UsageError as error:
        tell(f"error: {error}")
        return 2
    except OSError as error:
        # Whoever was reading, such as `head`, has seen enough.
        if not isinstance(error, BrokenPipeError):
            tell(f"error: {in_words(error)}")
        finish_output()
        return 1
    except KeyboardInterrupt:
        tell("interrupted")
        return 130
    except Exception as error:
        if not is_lack_of_memory(error):
            raise
        tell("error: there is not enough memory; try fewer or smaller of everything")
        return 1


def _expect_streams() -> None:
    """Opens what the process was started without; a file would take its place."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w"))


def _find(words: Sequence[str]) -> Callable[[Sequence[str]], int] | None:
    """The command that the first word names; `None` if the word was `--version`."""
    # Here, since a missing package is not to be a traceback.
    from .parsing import options_class, parse
    from .values import choice, switch

    width = max(map(len, _COMMANDS))
    listed = (f"{name:{width}}  {about}" for name, (_, about) in _COMMANDS.items())
    kind = choice(_COMMANDS)
    command = kind.option("COMMAND", "\n".join(listed), hint="", positional=True)
    options = options_class(
        "Options",
        ("command", command, None),
        ("version", switch("print the version"), False),
    )
    parsed = parse(
        options,
        words or ["--help"],
        command="",
        about="PPO for policies with memory, noise and other state.\n"
        f"`{PROGRAM} COMMAND --help` says more about a command.",
    )
    if parsed.version:
        from importlib.metadata import version

        print(PROGRAM, version("nnx_ppo_fn"))
        return None
    name, _ = _COMMANDS[parsed.command]
    return importlib.import_module(f".{name}", __package__).run


def _expect_extra() -> None:
    missing = [name for name in _EXTRA if find_spec(name) is None]
    if missing:
        raise UsageError(
            f"the command line needs {' and '.join(missing)}; "
            'run: pip install "nnx_ppo_fn[cli]"'
        )
