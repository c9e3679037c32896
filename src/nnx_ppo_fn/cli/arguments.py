"""What the command line understands."""

import argparse
import math
from pathlib import Path
from typing import Any, final, Never


DEFAULT_ENV = "hidden-cartpole"
DEFAULT_POLICY = "lstm"
LARGEST_SEED = 2**31 - 1


@final
class UsageError(Exception):
    """The command line asks for something that cannot be done; one line says what."""


@final
class _Parser(argparse.ArgumentParser):
    """Complains in one line instead of printing the whole usage first."""

    def error(self, message: str) -> Never:
        raise UsageError(message)


def parse(arguments: list[str] | None) -> argparse.Namespace:
    """Reads the command line.

    **Arguments:**

    - `arguments`: the words after the program's name; `None` takes the process's own.

    **Returns:**

    The options of `train`.

    **Raises:**

    - `UsageError` where an option is unknown or has an impossible value.
    - `SystemExit` after `--help` and `--version`.
    """
    parser = _Parser(
        prog="nnx-ppo-fn",
        description="PPO for policies with memory, noise and other state.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action=_PrintVersion)
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    _add_train(commands)
    return parser.parse_args(arguments)


def _add_train(commands: Any) -> None:
    train = commands.add_parser(
        "train",
        help="train a policy and write a run folder",
        description=(
            "Trains a policy and writes a run folder with the settings, the metrics, "
            "a picture of the learning curve, and the network. Settings that are not "
            "given here come from the environment's preset."
        ),
        allow_abbrev=False,
    )
    train.add_argument(
        "env",
        nargs="?",
        default=DEFAULT_ENV,
        metavar="ENV",
        help="the environment: hidden-cartpole (default), cartpole, pendulum, "
        "gymnax:<id>, ...; an unknown name lists all",
    )
    train.add_argument(
        "--policy",
        default=DEFAULT_POLICY,
        metavar="NAME",
        help="mlp, lstm (default), gru or variational",
    )
    train.add_argument(
        "--total-steps",
        type=_count,
        metavar="N",
        help="environment steps, over all environments",
    )
    train.add_argument(
        "--seed", type=_seed, metavar="N", help="of everything random (default 17)"
    )
    train.add_argument(
        "--n-envs", type=_count, metavar="N", help="environments side by side"
    )
    train.add_argument(
        "--learning-rate", type=_rate, metavar="X", help="Adam's, at the start"
    )
    train.add_argument(
        "--out",
        type=_folder,
        metavar="DIR",
        help="the run folder, which must not hold anything yet "
        "(default runs/<env>-<policy>-seed<seed>-<time>)",
    )
    train.add_argument(
        "--quiet", action="store_true", help="print nothing but the run folder"
    )


@final
class _PrintVersion(argparse.Action):
    """Looks the version up only when it is asked for."""

    def __init__(self, option_strings: list[str], dest: str):
        super().__init__(option_strings, dest, nargs=0, help="print the version")

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> Never:
        from importlib.metadata import version

        print(parser.prog, version("nnx_ppo_fn"))
        parser.exit()


def _count(text: str) -> int:
    number = _integer(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, got {number}")
    return number


def _seed(text: str) -> int:
    number = _integer(text)
    if not 0 <= number <= LARGEST_SEED:
        raise argparse.ArgumentTypeError(
            f"must be between 0 and {LARGEST_SEED}, got {number}"
        )
    return number


def _folder(text: str) -> Path:
    if not text.strip():
        raise argparse.ArgumentTypeError("must be the name of a folder, got nothing")
    return Path(text)


def _integer(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"must be a whole number such as 100_000, got {text!r}"
        ) from None


def _rate(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not 0 < number < math.inf:
        raise argparse.ArgumentTypeError(
            f"must be a positive number such as 1e-3, got {text!r}"
        )
    return number
