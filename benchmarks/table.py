"""Results as text: columns on a terminal, or a table for a page."""

from collections.abc import Sequence
from typing import TypeAlias

from .device import Device
from .records import Results, Row, times_floor, times_products
from .returns import Returns
from .timing import Spread


Table: TypeAlias = Sequence[Sequence[str]]
"""Lines of cells, the first one the header."""

_UNITS = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))


def report(results: Results) -> str:
    """Everything that a run found, for a terminal."""
    device = results.device
    lines = [
        f"{device.name} ({device.platform}, {device.devices}), {device.cores} cores, "
        f"Python {device.python}, JAX {device.jax}",
        f"limits: {number(device.flops_per_second)}FLOP/s in a float32 product, "
        f"{number(device.bytes_per_second)}B/s from and to memory",
    ]
    if results.rows:
        lines += ["", columns(rows_table(results))]
    if results.ratios:
        lines += ["", columns(ratios_table(results))]
    if results.restarts:
        lines += ["", columns(restarts_table(results))]
    if results.returns:
        lines += ["", columns(returns_table(results.returns))]
    lines += ["", *sentences(results)]
    if results.returns:
        lines.append(bounds(results.returns))
    lines += [f"{name} is missing: {how}" for name, how in results.missing.items()]
    return "\n".join(lines)


def rows_table(results: Results) -> Table:
    """All rows: speed, compilation, memory, and the distance from the floor."""
    header = (
        "network",
        "envs",
        "T",
        "measure",
        "library",
        "steps/s",
        "(quartiles)",
        "lower, s",
        "compile, s",
        "again, s",
        "peak",
        "FLOP",
        "x floor",
        "x products",
    )
    return [header, *(_line(row, results.device) for row in results.rows)]


def ratios_table(results: Results) -> Table:
    """How many times as fast as each peer."""
    header = (
        "network",
        "envs",
        "T",
        "measure",
        "peer",
        "times as fast",
        "(quartiles)",
        "products alone",
        "compile time",
    )
    return [
        header,
        *(
            (
                ratio.network,
                str(ratio.environments),
                str(ratio.rollout_length),
                ratio.measure,
                ratio.peer,
                f"{ratio.speed.median:.2f}",
                f"{ratio.speed.lower_quartile:.2f}-{ratio.speed.upper_quartile:.2f}",
                f"{ratio.of_products:.1f}" if ratio.of_products else "",
                f"{ratio.compile_seconds:.2f} of its",
            )
            for ratio in results.ratios
        ),
    ]


def restarts_table(results: Results) -> Table:
    """What it costs to begin episodes anew, and what each way gives up."""
    header = ("reset", "ends", "way", "us a step", "x library", "(quartiles)")
    return [
        (*header, "gives up"),
        *(
            (
                restarts.reset,
                restarts.ends,
                restarts.way,
                f"{1e6 * restarts.seconds_per_step.median:.0f}",
                f"{restarts.ratio.median:.2f}",
                f"{restarts.ratio.lower_quartile:.2f}-"
                f"{restarts.ratio.upper_quartile:.2f}",
                restarts.gives_up,
            )
            for restarts in results.restarts
        ),
    ]


def returns_table(returns: Returns) -> Table:
    """What each library's policies earn, and whether it is what this library's do."""
    ours = returns.libraries[0]
    header = (
        "library",
        "untrained",
        *(f"seed {seed}" for seed in returns.seeds),
        "mean",
        "spread",
        f"as {ours.library}",
    )
    return [
        header,
        *(
            (
                learned.library,
                f"{sum(learned.untrained) / len(learned.untrained):.1f}",
                *(f"{value:.1f}" for value in learned.trained),
                f"{learned.mean:.1f}",
                f"{learned.spread:.1f}",
                ""
                if learned is ours
                else "within the spread"
                if learned.agrees_with(ours)
                else f"{learned.mean - ours.mean:+.1f}",
            )
            for learned in returns.libraries
        ),
    ]


def bounds(returns: Returns) -> str:
    """What a table of returns has to be read with."""
    return (
        f"returns: means of {returns.episodes} episodes after {returns.steps:,} "
        f"environment steps and {returns.updates:,} gradient steps; the best action "
        f"earns {returns.best:.1f}, and no action {returns.still:.1f}"
    )


def sentences(results: Results) -> list[str]:
    """What does not stand in a table."""
    said: list[str] = []
    if results.stored:
        parts = [
            f"{stored.network} in {stored.environments} environments "
            f"{stored.storage.stored} ({stored.storage.listed} listed)"
            for stored in results.stored
        ]
        said.append("bytes stored per environment step: " + ", ".join(parts))
    if results.compilations:
        said.append(
            f"compilations in {results.compilations.iterations} iterations: "
            f"{results.compilations.compilations}"
        )
    if results.agents:
        agents = results.agents
        text = (
            f"agents per minute ({agents.environment}, {agents.policy}, "
            f"{agents.steps:,} steps each): {agents.one_by_one.median:.1f} one by one; "
            f"{agents.seeds} seeds side by side {agents.side_by_side.median:.1f}, in "
            f"{agents.ratio.median:.2f} of the time; spread over {agents.devices} "
            f"devices {agents.spread.median:.1f}, in {agents.spread_ratio.median:.2f}"
        )
        if agents.cores_ratio:
            text += f"; by a process on each core in {agents.cores_ratio.median:.2f}"
        said.append(text)
    return said


def columns(table: Table) -> str:
    """Cells under each other; numbers to the right."""
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    right = [
        all(not cell or cell.lstrip("-")[:1].isdigit() for cell in column[1:])
        for column in zip(*table, strict=True)
    ]
    lines = [
        "  ".join(
            cell.rjust(width) if to_right else cell.ljust(width)
            for cell, width, to_right in zip(line, widths, right, strict=True)
        ).rstrip()
        for line in table
    ]
    return "\n".join([lines[0], "  ".join("-" * width for width in widths), *lines[1:]])


def markdown(table: Table) -> str:
    """The same for a page."""
    header, *lines = table
    rule = ["---"] * len(header)
    return "\n".join(f"| {' | '.join(line)} |" for line in [header, rule, *lines])


def number(value: float) -> str:
    """Three digits and a letter for the thousands."""
    for size, letter in _UNITS:
        if value >= size:
            return f"{value / size:.3g} {letter}"
    return f"{value:.3g} "


def _line(row: Row, device: Device) -> tuple[str, ...]:
    cost = row.cost
    memory = cost.memory if cost else None
    above, beside = times_floor(row, device), times_products(row)
    return (
        row.network,
        str(row.environments),
        str(row.rollout_length),
        row.measure,
        row.library,
        _rate(row.steps_per_second.median),
        _quartiles(row.steps_per_second),
        f"{cost.lower_seconds:.1f}" if cost else "",
        f"{cost.compile_seconds if cost else row.compile_seconds:.1f}",
        f"{row.recompile_seconds:.1f}",
        f"{number(memory.peak)}B" if memory else "",
        number(cost.flops).strip() if cost else "",
        f"{above:.1f}" if above else "",
        f"{beside:.1f}" if beside else "",
    )


def _rate(value: float) -> str:
    return f"{value / 1000:.1f} k" if value < 1e6 else f"{value / 1e6:.2f} M"


def _quartiles(spread: Spread) -> str:
    return f"{_rate(spread.lower_quartile)} - {_rate(spread.upper_quartile)}"
