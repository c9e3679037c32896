"""Measures how long calls take, several programs taking turns."""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import jax
import numpy as np


Timed: TypeAlias = Callable[[], float]
"""Makes one call, waits until its results are there, and returns the seconds."""


class Spread(NamedTuple):
    """A median and what lies a quarter of all values below and above."""

    lower_quartile: float
    median: float
    upper_quartile: float

    @classmethod
    def of(cls, values: Sequence[float]) -> "Spread":
        """The three quartiles of some values."""
        lower, median, upper = np.quantile(values, (0.25, 0.5, 0.75))
        return cls(float(lower), float(median), float(upper))


class Timing(NamedTuple):
    """What one program took.

    - `first_call`, `second_call`: seconds, with whatever was compiled in them.
    - `calls`: seconds of all the calls after these.
    """

    first_call: float
    second_call: float
    calls: tuple[float, ...]


def timed(function: Callable[[], Any]) -> Timed:
    """A function that returns how long it took, the device's part included."""

    def call() -> float:
        start = time.perf_counter()
        jax.block_until_ready(function())
        return time.perf_counter() - start

    return call


def feeding_back(function: Callable[..., Any], state: Any, *rest: Any) -> Timed:
    """Calls a function with the state that its last call returned first.

    **Arguments:**

    - `function`: returns `(state, something)`.
    - `state`: for the first call; it may be donated.
    - `rest`: the other arguments of every call.
    """

    def call() -> Any:
        nonlocal state
        state, result = function(state, *rest)
        return state, result

    return timed(call)


def best(call: Timed, *, seconds: float) -> float:
    """The shortest of some calls, after one that warms it up.

    **Arguments:**

    - `call`: what is timed.
    - `seconds`: for how long it is called, and at least three times.
    """
    call()
    taken: list[float] = []
    while len(taken) < 3 or sum(taken) < seconds:
        taken.append(call())
    return min(taken)


def take_turns(
    programs: Mapping[str, Timed], *, repeats: int, seconds: float
) -> dict[str, Timing]:
    """Calls programs in turns, so that what else a machine does befalls all of them.

    **Arguments:**

    - `programs`: by name.
    - `repeats`: how often each is called, after two calls that warm it up.
    - `seconds`: after which no more than three repeats are made.

    **Returns:**

    The `Timing` of each; the n-th calls of all were made one after another.
    """
    warm = {name: (call(), call()) for name, call in programs.items()}
    calls: dict[str, list[float]] = {name: [] for name in programs}
    start = time.perf_counter()
    for done in range(repeats):
        if done >= 3 and time.perf_counter() - start > seconds:
            break
        order = list(programs) if done % 2 == 0 else list(programs)[::-1]
        for name in order:
            calls[name].append(programs[name]())
    return {name: Timing(*warm[name], tuple(calls[name])) for name in programs}
