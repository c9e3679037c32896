"""What all peers have in common, and which there are."""

import contextlib
import importlib
import warnings
from collections.abc import Generator, Mapping
from typing import Protocol

import jax

from nnx_ppo_fn import PPOConfig

from ..playing import Policy
from ..programs import Program
from ..settings import Cell


class Peer(Protocol):
    """One cell of another library.

    **Attributes:**

    - `parameters`: how many numbers are trained.
    """

    @property
    def parameters(self) -> int:
        """How many numbers are trained."""
        ...

    def program(self, measure: str) -> Program:
        """What is timed."""
        ...

    def close(self) -> None:
        """Lets go of what runs in the background."""
        ...


class Learner(Protocol):
    """A module that trains the MLP with one library."""

    def learn(self, config: PPOConfig, seed: int) -> Policy:
        """The policy without noise; one that is not trained where there are no steps.

        **Arguments:**

        - `config`: counts and coefficients.
        - `seed`: of the weights and of all that is random in training.
        """
        ...


class Entry(Learner, Protocol):
    """A module of this package that runs a library."""

    MEASURES: tuple[str, ...]
    NETWORKS: tuple[str, ...]

    def open(self, cell: Cell) -> Peer:
        """Prepares a cell."""
        ...


PEERS: Mapping[str, tuple[str, str]] = {
    "nnx-ppo": ("nnx_ppo_0_3", "nnx-ppo==0.3.0"),
    "Brax": ("brax_ppo", "brax"),
    "rejax": ("rejax_ppo", "rejax"),
}
"""By name: the module that runs a peer, and what `pip install` wants to hear."""


def learners_of(peers: Mapping[str, Entry]) -> dict[str, Learner]:
    """All that learn: the peers, and rejax once more with the others' policy."""
    learners: dict[str, Learner] = dict(peers)
    if "rejax" in peers:
        with as_released():
            learners["rejax, squashed"] = importlib.import_module(  # pyright: ignore
                "benchmarks.peers.rejax_squashed"
            )
    return learners


def find_peers() -> tuple[dict[str, Entry], dict[str, str]]:
    """The peers that are installed, and of the others what to do about it."""
    found: dict[str, Entry] = {}
    missing: dict[str, str] = {}
    for name, (_, requirement) in PEERS.items():
        try:
            found[name] = load_peer(name)
        except ImportError as error:
            missing[name] = f"pip install {requirement}   # {error}"
    return found, missing


def load_peer(name: str) -> Entry:
    """Imports what runs one of `PEERS`, and thereby the library itself."""
    module, _ = PEERS[name]
    with as_released():
        return importlib.import_module(f"benchmarks.peers.{module}")  # pyright: ignore


@contextlib.contextmanager
def as_released() -> Generator[None]:
    """JAX as other libraries expect it, which casts and broadcasts as they like."""
    with (
        jax.numpy_dtype_promotion("standard"),
        jax.numpy_rank_promotion("allow"),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")
        yield
