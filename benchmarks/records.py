"""What a run of the benchmark leaves."""

import dataclasses
from typing import final, NamedTuple

from .agents import Agents
from .compilations import Compilations
from .device import Device
from .programs import Cost, Opened
from .restarts import Restarts
from .returns import Returns
from .settings import Cell, Settings
from .storage import Storage
from .timing import Spread, Timing


class Row(NamedTuple):
    """One measure of one library in one cell.

    - `library`, `network`, `environments`, `rollout_length`, `measure`: which.
    - `parameters`: numbers that are trained.
    - `steps_per_second`: environment steps.
    - `seconds_per_rollout`: seconds per `environments * rollout_length` steps.
    - `first_call`, `second_call`: seconds of the calls before.
    - `repeats`: calls that were counted.
    - `compile_seconds`: of this library, of lowering and of compiling together; of a
      peer, of its first call above the median one.
    - `recompile_seconds`: of the second call above the median one.
    - `cost`: what the compiler says, of this library alone.
    """

    library: str
    network: str
    environments: int
    rollout_length: int
    measure: str
    parameters: int
    steps_per_second: Spread
    seconds_per_rollout: Spread
    first_call: float
    second_call: float
    repeats: int
    compile_seconds: float
    recompile_seconds: float
    cost: Cost | None


class Ratio(NamedTuple):
    """How many times as fast as a peer this library is, from calls made in turns.

    - `peer`, `network`, `environments`, `rollout_length`, `measure`: of what.
    - `speed`: the peer's seconds divided by this library's.
    - `compile_seconds`: this library's divided by the peer's.
    - `of_products`: what `speed` would be if this library's products were all that it
      did; `None` where they were not timed.
    """

    peer: str
    network: str
    environments: int
    rollout_length: int
    measure: str
    speed: Spread
    compile_seconds: float
    of_products: float | None = None


class Stored(NamedTuple):
    """`Storage` of a cell."""

    network: str
    environments: int
    rollout_length: int
    storage: Storage


@final
@dataclasses.dataclass
class Results:
    """All that a run found.

    - `settings`, `device`: what was asked for, and where.
    - `rows`, `ratios`, `stored`: by cell.
    - `agents`, `compilations`, `returns`: `None` where they were not asked for.
    - `restarts`: empty where they were not asked for.
    - `missing`: peers that could not run, and why.
    """

    settings: Settings
    device: Device
    rows: list[Row] = dataclasses.field(default_factory=list)
    ratios: list[Ratio] = dataclasses.field(default_factory=list)
    stored: list[Stored] = dataclasses.field(default_factory=list)
    agents: Agents | None = None
    compilations: Compilations | None = None
    restarts: list[Restarts] = dataclasses.field(default_factory=list)
    returns: Returns | None = None
    missing: dict[str, str] = dataclasses.field(default_factory=dict)


def row_of(
    library: str,
    cell: Cell,
    measure: str,
    program: Opened,
    timing: Timing,
) -> Row:
    """Puts together what is known of one program."""
    rollouts = program.steps / cell.steps
    per_rollout = [seconds / rollouts for seconds in timing.calls]
    median_call = Spread.of(timing.calls).median
    cost = program.cost
    return Row(
        library=library,
        network=cell.network,
        environments=cell.environments,
        rollout_length=cell.rollout_length,
        measure=measure,
        parameters=program.parameters,
        steps_per_second=Spread.of([cell.steps / seconds for seconds in per_rollout]),
        seconds_per_rollout=Spread.of(per_rollout),
        first_call=timing.first_call,
        second_call=timing.second_call,
        repeats=len(timing.calls),
        compile_seconds=timing.first_call - median_call
        if cost is None
        else cost.lower_seconds + cost.compile_seconds,
        recompile_seconds=max(0.0, timing.second_call - median_call),
        cost=cost,
    )


def floor_seconds(row: Row, device: Device) -> float | None:
    """The longer of the times that the products and the memory traffic need.

    `None` for a peer, of which the compiler says nothing.
    """
    if row.cost is None:
        return None
    return max(
        row.cost.flops / device.flops_per_second,
        row.cost.bytes / device.bytes_per_second,
    )


def times_floor(row: Row, device: Device) -> float | None:
    """How many times as long as the floor the median call took."""
    floor = floor_seconds(row, device)
    return row.seconds_per_rollout.median / floor if floor else None


def times_products(row: Row) -> float | None:
    """How many times as long as its matrix products alone the median call took."""
    alone = row.cost.products_seconds if row.cost else None
    return row.seconds_per_rollout.median / alone if alone else None


def ratio_of(cell: Cell, ours: Row, theirs: Row, timings: tuple[Timing, ...]) -> Ratio:
    """Compares calls that were made one after the other.

    **Arguments:**

    - `cell`: where.
    - `ours`, `theirs`: the rows.
    - `timings`: the two that they were made of, ours first.
    """
    scale = theirs.seconds_per_rollout.median / Spread.of(timings[1].calls).median
    pairs = zip(timings[0].calls, timings[1].calls, strict=True)
    speed = Spread.of([scale * their / our for our, their in pairs])
    factor = times_products(ours)
    return Ratio(
        peer=theirs.library,
        network=cell.network,
        environments=cell.environments,
        rollout_length=cell.rollout_length,
        measure=ours.measure,
        speed=speed,
        compile_seconds=ours.compile_seconds / theirs.compile_seconds,
        of_products=speed.median * factor if factor else None,
    )
