"""The entry point: reads the command line, and turns errors into exit codes."""

import signal
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
    ignored = signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    if arguments is None and not ignored:
        # The process is ours. Before and after a run there is nothing to lose, so that
        # Ctrl-C just ends it: imports and exits would answer with a traceback.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        options = parse(arguments)
        # After parsing, since this import takes far longer than a complaint.
        from .training import train

        return train(options)
    except UsageError as error:
        # One line, however many the error has.
        message = " ".join(str(error).split())
        print(f"nnx-ppo-fn: error: {message}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("nnx-ppo-fn: interrupted; nothing was kept", file=sys.stderr)
        return 130
