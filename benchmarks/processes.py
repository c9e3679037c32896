"""Runs programs in processes of their own.

What a process has loaded, compiled and allocated before changes how fast the next
program runs in it, by a quarter and more. Nobody trains with two libraries in one
process, so each program that is compared has one for itself.
"""

import contextlib
from collections.abc import Generator, Iterable
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context

import jax

from nnx_ppo_fn.algorithms.spreading import available_cores

from .alone import seconds_alone
from .memory import keep_memory
from .ours import NAME, Ours
from .peers.borders import load_peer, Peer
from .programs import Opened, Program, SPREAD
from .settings import Cell


class Process:
    """One measure of one library in one cell, in a process of its own."""

    def __init__(self, library: str, cell: Cell, measure: str):
        """Starts the process, which loads what it needs by itself.

        **Arguments:**

        - `library`: this one's `NAME`, or one of `PEERS`.
        - `cell`, `measure`: which program.
        """
        self._pool = ProcessPoolExecutor(1, mp_context=get_context("spawn"))
        self._ready = self._pool.submit(_load, library, cell, measure)

    def wait(self) -> None:
        """Returns when everything that the process needs is loaded."""
        self._ready.result()

    def open(self) -> Opened:
        """Compiles the program, where that happens before its first call."""
        return self._pool.submit(_open).result()

    def call(self) -> float:
        """Calls the program once, and returns the seconds that it took there."""
        return self._pool.submit(_call).result()

    def products_seconds(self) -> float:
        """Seconds that its matrix products take by themselves, in the same process."""
        return self._pool.submit(_products_seconds).result()

    def close(self) -> None:
        """Ends the process, whatever happened in it."""
        try:
            with contextlib.suppress(BrokenProcessPool):
                self._pool.submit(_close).result()
        finally:
            self._pool.shutdown()


@contextlib.contextmanager
def started(
    libraries: Iterable[str], cell: Cell, measure: str
) -> Generator[dict[str, Process]]:
    """One process for each library, each with everything loaded."""
    with contextlib.ExitStack() as stack:
        processes: dict[str, Process] = {}
        for library in libraries:
            processes[library] = Process(library, cell, measure)
            stack.callback(processes[library].close)
        for process in processes.values():
            process.wait()
        yield processes


_loaded: list[tuple[Peer, str]] = []
"""The library of this process and the measure, where it is a `Process`."""

_running: list[Program] = []
"""Its program, once it is opened."""


def _load(library: str, cell: Cell, measure: str) -> None:
    # Before the threads of JAX start.
    keep_memory()
    if library == NAME and measure == SPREAD:
        jax.config.update("jax_num_cpu_devices", available_cores())
    loaded = Ours(cell) if library == NAME else load_peer(library).open(cell)
    _loaded.append((loaded, measure))


def _open() -> Opened:
    ((library, measure),) = _loaded
    program = library.program(measure)
    _running.append(program)
    return Opened(program.steps, program.cost, library.parameters, program.storage)


def _call() -> float:
    (program,) = _running
    return program.call()


def _products_seconds() -> float:
    (program,) = _running
    return seconds_alone(program.products)


def _close() -> None:
    for library, _ in _loaded:
        library.close()
