"""The command line: `nnx-ppo-fn train`."""

from .command import main as main
