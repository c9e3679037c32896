"""The command line `nnx-ppo-fn`: train, evaluate, compare, list, and check."""

from .command import main as main
