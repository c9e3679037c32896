"""What is measured: the grid, and how long."""

import argparse
import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import final, NamedTuple

from nnx_ppo_fn import PPOConfig

from .networks import NETWORKS
from .programs import MEASURES


EPOCHS = 4
MINIBATCHES = 4
"""Passes over a rollout, and the parts of each, of every library."""


class Cell(NamedTuple):
    """One place in the grid.

    - `network`: one of `NETWORKS`.
    - `environments`: side by side.
    - `rollout_length`: steps of each.
    - `measures`: which of `MEASURES` are taken.
    """

    network: str
    environments: int
    rollout_length: int
    measures: tuple[str, ...] = MEASURES

    @property
    def steps(self) -> int:
        """Environment steps of one rollout."""
        return self.environments * self.rollout_length

    @property
    def config(self) -> PPOConfig:
        """Counts and coefficients, of every library."""
        return PPOConfig(
            n_envs=self.environments,
            rollout_length=self.rollout_length,
            n_epochs=EPOCHS,
            n_minibatches=MINIBATCHES,
        )


@final
@dataclasses.dataclass(frozen=True)
class Settings:
    """The settings of one run.

    - `networks`, `environments`, `rollout_lengths`: the grid.
    - `peers`: whether other libraries are run as well.
    - `repeats`: calls of every program after it is warm.
    - `seconds`: after which the rest of them is left out.
    - `seeds`: agents that are trained side by side, 0 for none.
    - `agent_iterations`: how many iterations of each are timed.
    - `iterations`: of the run in which compilations are counted, 0 for none.
    - `restarts`: whether ways to begin episodes anew are compared.
    - `speed`: whether the grid, the agents and the compilations are measured.
    - `returns`: whether every library trains the MLP, and what it learns is played.
    - `return_seeds`, `return_iterations`: of these trainings.
    - `output`: a folder for `benchmark.json` and `benchmark.png`, or `None`.
    - `quick`: whether most networks are measured in one whole step alone, and no matrix
      product by itself.
    """

    networks: tuple[str, ...] = tuple(NETWORKS)
    environments: tuple[int, ...] = (64, 256, 1024)
    rollout_lengths: tuple[int, ...] = (32, 128)
    peers: bool = False
    repeats: int = 15
    seconds: float = 10.0
    seeds: int = 32
    agent_iterations: int = 2
    iterations: int = 50
    restarts: bool = False
    speed: bool = True
    returns: bool = False
    return_seeds: tuple[int, ...] = (0, 1, 2)
    return_iterations: int = 256
    output: Path | None = None
    quick: bool = False

    def cells(self) -> list[Cell]:
        """The places of the grid, in the order in which they are measured."""
        if not self.speed:
            return []
        return [
            Cell(network, environments, length, self._measures(network))
            for length in self.rollout_lengths
            for environments in self.environments
            for network in self.networks
        ]

    def _measures(self, network: str) -> tuple[str, ...]:
        return ("step",) if self.quick and network != "mlp" else MEASURES


QUICK = Settings(
    networks=("mlp", "graph"),
    environments=(64,),
    rollout_lengths=(8,),
    repeats=5,
    seconds=1.0,
    seeds=0,
    iterations=10,
    return_iterations=16,
    quick=True,
)
"""A look at every kind of row, for which a minute or two have to do."""


def parse(arguments: Sequence[str] | None = None) -> Settings:
    """Reads the command line.

    **Arguments:**

    - `arguments`: its words, or `None` for those of this process.
    """
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="Measures the library on whatever device JAX finds.",
    )
    add = parser.add_argument
    add("--quick", action="store_true", help="a look at every kind of row")
    add("--peers", action="store_true", help="nnx-ppo, Brax and rejax in the same run")
    add("--networks", type=_networks, help=f"of {','.join(NETWORKS)}")
    add("--environments", type=_environments, help="such as 64,256,1024")
    add(
        "--rollout-length",
        type=_counts,
        dest="rollout_lengths",
        help="steps of each environment, such as 32,128",
    )
    add("--repeats", type=int, help="calls of each program")
    add("--seconds", type=float, help="the most for the calls of one row")
    add("--seeds", type=int, help="agents trained side by side; 0 for none")
    add("--restarts", action="store_true", help="ways to begin episodes anew")
    add(
        "--returns",
        action="store_true",
        help="train with every library and compare what is learned",
    )
    add(
        "--no-speed",
        action="store_const",
        const=False,
        dest="speed",
        help="leave out everything else",
    )
    add("--return-seeds", type=_seeds, help="of these trainings, such as 0,1,2")
    add("--return-iterations", type=int, help="rollouts of each of them")
    add("--output", type=Path, help="a folder for one JSON file and one picture")
    given = vars(parser.parse_args(arguments))
    base = QUICK if given.pop("quick") else Settings()
    changes = {name: value for name, value in given.items() if value not in (None, [])}
    return dataclasses.replace(base, **changes)


def _seeds(text: str) -> tuple[int, ...]:
    return tuple(int(number) for number in text.split(","))


def _networks(text: str) -> tuple[str, ...]:
    names = tuple(text.split(","))
    for name in names:
        if name not in NETWORKS:
            raise argparse.ArgumentTypeError(
                f"unknown network {name!r}; there are {', '.join(NETWORKS)}"
            )
    return names


def _environments(text: str) -> tuple[int, ...]:
    numbers = _counts(text)
    if any(number % MINIBATCHES for number in numbers):
        raise argparse.ArgumentTypeError(
            f"expected multiples of {MINIBATCHES}, since there are as many "
            f"minibatches, got {text}"
        )
    return numbers


def _counts(text: str) -> tuple[int, ...]:
    numbers = tuple(int(number) for number in text.split(","))
    if any(number < 1 for number in numbers):
        raise argparse.ArgumentTypeError(f"expected numbers from 1 on, got {text}")
    return numbers
