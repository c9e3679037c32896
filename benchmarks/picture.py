"""Results as one picture."""

from pathlib import Path
from typing import Any

from .ours import NAME
from .programs import MEASURES
from .records import Results, Row


_COLOURS = {
    NAME: "#1f5fa8",
    "nnx-ppo": "#e08214",
    "Brax": "#3a8f5c",
    "rejax": "#8e5ea2",
}
_TITLES = {
    "rollout": "Rollout",
    "replay": "Replay (loss and gradient)",
    "step": "Whole PPO step",
    "evaluation": "Evaluation",
}


def draw(results: Results, path: Path) -> None:
    """One panel per measure: environment steps per second, a bar for every library.

    The thin line on a bar spans the quartiles, and the mark above it is the floor's
    speed.

    **Arguments:**

    - `results`: what was found.
    - `path`: of a PNG file; folders are made.

    **Raises:**

    `ImportError` without matplotlib.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    measures = [m for m in MEASURES if any(r.measure == m for r in results.rows)]
    heights = [_height([r for r in results.rows if r.measure == m]) for m in measures]
    figure = Figure(
        figsize=(9.0, 1.2 + sum(heights)), layout="constrained", facecolor="white"
    )
    FigureCanvasAgg(figure)
    figure.suptitle(
        f"Environment steps per second · {results.device.name}",
        fontsize=12,
        fontweight="bold",
    )
    panels = figure.subplots(len(measures), 1, squeeze=False, height_ratios=heights)
    for panel, measure in zip(panels[:, 0], measures, strict=True):
        rows = [row for row in results.rows if row.measure == measure]
        _draw_bars(panel, rows)
        panel.set_title(_TITLES[measure], loc="left", fontsize=11)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)


def _draw_bars(panel: Any, rows: list[Row]) -> None:
    from matplotlib.ticker import EngFormatter

    places: dict[str, float] = {}
    position = 0.0
    before = ""
    for row in rows:
        place = f"{row.network} · {row.environments} × {row.rollout_length}"
        if place != before and before:
            position += 0.4
        places.setdefault(place, position)
        before = place
        _draw_bar(panel, row, position)
        position += 1
    panel.set_xscale("log")
    panel.xaxis.set_major_formatter(EngFormatter(sep=""))
    panel.set_yticks(list(places.values()), list(places), fontsize=8)
    panel.invert_yaxis()
    panel.grid(axis="x", color="#e6e8eb", linewidth=0.8)
    panel.set_axisbelow(True)
    for side in ("top", "right", "left"):
        panel.spines[side].set_visible(False)
    panel.tick_params(axis="y", length=0)
    panel.legend(frameon=False, fontsize=8, loc="upper left", bbox_to_anchor=(1, 1))


def _draw_bar(panel: Any, row: Row, position: float) -> None:
    speed = row.steps_per_second
    known = panel.get_legend_handles_labels()[1]
    panel.barh(
        position,
        speed.median,
        height=0.8,
        color=_COLOURS[row.library],
        label=row.library if row.library not in known else None,
    )
    panel.plot(
        (speed.lower_quartile, speed.upper_quartile),
        (position, position),
        color="black",
        linewidth=1,
    )
    if row.floor_seconds:
        floor_speed = row.environments * row.rollout_length / row.floor_seconds
        panel.plot(
            floor_speed,
            position,
            marker="|",
            color="#8a8f98",
            markersize=9,
            label="floor" if "floor" not in known else None,
        )


def _height(rows: list[Row]) -> float:
    return 0.7 + 0.2 * len(rows)
