"""What is made of seconds, against seconds that can be reckoned by hand."""

import pytest

from benchmarks.device import Device
from benchmarks.programs import Cost, Opened
from benchmarks.records import (
    ratio_of,
    Results,
    row_of,
    times_floor,
    times_products,
)
from benchmarks.settings import Cell, Settings
from benchmarks.table import ratios_table
from benchmarks.timing import Timing


CELL = Cell("mlp", environments=4, rollout_length=5)
OURS = Timing(first_call=1.0, second_call=0.5, calls=(0.1, 0.2, 0.4))
THEIRS = Timing(first_call=7.5, second_call=3.0, calls=(0.5, 0.8, 2.0))
COST = Cost(
    lower_seconds=0.5,
    compile_seconds=1.5,
    memory=None,
    flops=1e6,
    products_seconds=0.05,
    bytes=10,
)
DEVICE = Device(
    name="a device",
    platform="cpu",
    devices=1,
    cores=1,
    python="3",
    jax="0",
    flops_per_second=1e8,
    bytes_per_second=1e9,
)


def rows(*, iterations=1):
    """Ours, and a peer's whose calls hold several rollouts."""
    steps = iterations * CELL.steps
    ours = row_of("ours", CELL, "step", Opened(CELL.steps, COST, 3), OURS)
    theirs = row_of("theirs", CELL, "step", Opened(steps, None, 3), THEIRS)
    return ours, theirs


def test_speeds_are_steps_by_seconds():
    """20 steps in 0.2 seconds, and 80 in 0.8."""
    ours, theirs = rows(iterations=4)
    assert ours.steps_per_second.median == pytest.approx(100)
    assert theirs.steps_per_second.median == pytest.approx(100)
    assert theirs.seconds_per_rollout.median == pytest.approx(0.2)


@pytest.mark.parametrize("iterations, speed", [(1, 5.0), (4, 1.25)])
def test_a_ratio_above_one_says_that_we_are_faster(iterations, speed):
    """Ratios of calls made in turns: 5, 4 and 5 to one."""
    ours, theirs = rows(iterations=iterations)
    ratio = ratio_of(CELL, ours, theirs, (OURS, THEIRS))
    assert ratio.speed.median == pytest.approx(speed)
    assert ratio.speed.lower_quartile == pytest.approx(0.9 * speed)


def test_what_products_alone_would_reach():
    """The row takes four times as long as its products."""
    ours, theirs = rows()
    ratio = ratio_of(CELL, ours, theirs, (OURS, THEIRS))
    assert ratio.of_products == pytest.approx(4 * 5)
    results = Results(Settings(), DEVICE, ratios=[ratio])
    header, line = ratios_table(results)
    assert dict(zip(header, line, strict=True))["products alone"] == "20.0"
    unknown = ours._replace(cost=COST._replace(products_seconds=None))
    assert ratio_of(CELL, unknown, theirs, (OURS, THEIRS)).of_products is None


def test_compiling_is_what_a_first_call_takes_longer():
    """Ours is known apart; a peer's second compilation is not in its first one."""
    ours, theirs = rows()
    assert ours.compile_seconds == pytest.approx(0.5 + 1.5)
    assert theirs.compile_seconds == pytest.approx(7.5 - 0.8)
    assert theirs.recompile_seconds == pytest.approx(3.0 - 0.8)
    ratio = ratio_of(CELL, ours, theirs, (OURS, THEIRS))
    assert ratio.compile_seconds == pytest.approx(2.0 / 6.7)


def test_how_far_a_row_is_from_its_floors():
    """A million operations at 100 million a second are 0.01 seconds."""
    ours, theirs = rows()
    assert times_floor(ours, DEVICE) == pytest.approx(20)
    assert times_products(ours) == pytest.approx(4)
    assert times_floor(theirs, DEVICE) is None and times_products(theirs) is None
    slow_memory = DEVICE._replace(bytes_per_second=100)
    assert times_floor(ours, slow_memory) == pytest.approx(2)
