"""Results as one picture."""

from pathlib import Path
from typing import Any

from .ours import NAME
from .programs import MEASURES, SPREAD
from .records import floor_seconds, Results, Row


_COLOURS = {
    NAME: "#1f5fa8",
    "nnx-ppo": "#e08214",
    "Brax": "#3a8f5c",
    "rejax": "#8e5ea2",
}
_GREY = "#8a8f98"
_TITLES = {
    "rollout": "Rollout",
    "replay": "Replay",
    "step": "Whole step",
    "evaluation": "Evaluation",
    SPREAD: "Step on all devices",
}


def draw(results: Results, path: Path) -> None:
    """One panel per measure, one line per cell, one dot per library.

    Dots stand at medians, with the quartiles on both sides. The grey mark is the speed
    that the device's limits would allow.

    **Arguments:**

    - `results`: what was found.
    - `path`: of a PNG file; folders are made.

    **Raises:**

    `ImportError` without matplotlib.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    places = list(dict.fromkeys(map(_place, results.rows)))
    found = {row.measure for row in results.rows}
    measures = [measure for measure in (*MEASURES, SPREAD) if measure in found]
    size = (1.8 + 2.8 * len(measures), 1.7 + 0.22 * len(places))
    figure = Figure(figsize=size, layout="constrained", facecolor="white")
    FigureCanvasAgg(figure)
    figure.suptitle(
        f"Environment steps per second · {results.device.name}",
        fontsize=12,
        fontweight="bold",
    )
    panels = figure.subplots(1, len(measures), sharey=True, squeeze=False)[0]
    for panel, measure in zip(panels, measures, strict=True):
        for row in results.rows:
            if row.measure == measure:
                floor = floor_seconds(row, results.device)
                _draw_row(panel, row, places.index(_place(row)), floor)
        _tidy(panel, _TITLES[measure], places)
    _add_legend(figure, results.rows)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)


def _place(row: Row) -> str:
    return f"{row.network} · {row.environments} × {row.rollout_length}"


def _draw_row(panel: Any, row: Row, height: int, floor: float | None) -> None:
    speed, colour = row.steps_per_second, _COLOURS[row.library]
    quartiles = (speed.lower_quartile, speed.upper_quartile)
    panel.plot(quartiles, (height, height), color=colour, linewidth=1.5)
    panel.plot(speed.median, height, "o", color=colour, markersize=5)
    if floor:
        limit = row.environments * row.rollout_length / floor
        panel.plot(limit, height, "|", color=_GREY, markersize=9)


def _tidy(panel: Any, title: str, places: list[str]) -> None:
    from matplotlib.ticker import EngFormatter, LogLocator, NullFormatter

    panel.set_title(title, loc="left", fontsize=11)
    panel.set_xscale("log")
    low, high = panel.dataLim.intervalx
    # At least a decade, so that a small difference does not look large.
    widened = max(1.3, (10 / (high / low)) ** 0.5)
    panel.set_xlim(low / widened, high * widened)
    panel.xaxis.set_major_locator(LogLocator(subs=(1.0, 3.0), numticks=8))
    panel.xaxis.set_major_formatter(EngFormatter(sep=""))
    panel.xaxis.set_minor_formatter(NullFormatter())
    panel.tick_params(axis="x", labelsize=8)
    panel.tick_params(axis="y", length=0)
    panel.set_yticks(range(len(places)), places, fontsize=8)
    panel.set_ylim(len(places) - 0.5, -0.5)
    panel.grid(color="#e6e8eb", linewidth=0.8)
    panel.set_axisbelow(True)
    for side in ("top", "right", "left"):
        panel.spines[side].set_visible(False)


def _add_legend(figure: Any, rows: list[Row]) -> None:
    from matplotlib.lines import Line2D

    libraries = dict.fromkeys(row.library for row in rows)
    handles = [
        Line2D([], [], marker="o", linestyle="", color=_COLOURS[name], label=name)
        for name in libraries
    ]
    limit: dict[str, Any] = {"color": _GREY, "label": "limit of the device"}
    handles.append(Line2D([], [], marker="|", linestyle="", markersize=9, **limit))
    figure.legend(
        handles=handles,
        loc="outside lower center",
        ncols=len(handles),
        frameon=False,
        fontsize=9,
    )
