"""The entry point: reads the command line, and turns errors into exit codes."""

import sys

from .arguments import parse, UsageError


def main(arguments: list[str] | None = None) -> int:
    """Runs a command.

    **Arguments:**

    - `arguments`: the words after the program's name; `None` takes the process's own.

    **Returns:**

    The exit code: 0 where the command did what it says, 1 where training met a fault,
    2 where it was not possible to begin, 130 where Ctrl-C ended it.
    """
    try:
        options = parse(arguments)
        # After parsing, since this import takes far longer than a complaint.
        from .training import train

        return train(options)
    except UsageError as error:
        complain(str(error))
        return 2
    except KeyboardInterrupt:
        complain("interrupted before training began; nothing was kept")
        return 130


def complain(message: str) -> None:
    """Prints one line on the standard error, however many `message` has."""
    print(f"nnx-ppo-fn: error: {' '.join(message.split())}", file=sys.stderr)
