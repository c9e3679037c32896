"""The entry point of `nnx-ppo-fn`, outside of the package, whose import takes a second.

Until a command begins there is nothing to lose, so that Ctrl-C just ends the process.
This has to be said before the import: Python would answer with a traceback.
"""

import signal


def main() -> int:
    """Runs the command line of the process, and returns its exit code."""
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from nnx_ppo_fn.cli import main

    return main()
