"""The picture of a run: its learning curve, and whether the replay agreed."""

import math
from pathlib import Path
from typing import Any

from ..runs import Metrics, PICTURE, read_description, read_metrics
from .progress import (
    CRITIC_LOSS,
    EVALUATION,
    EVALUATION_SPREAD,
    LOG_RATIO,
    TRAINING_RETURN,
)


BLUE = "#1f5fa8"
ORANGE = "#e08214"
GREY = "#8a8f98"
COLOURS = (BLUE, ORANGE, "#3a8f5c", "#8e5ea2", "#b5483a", "#5f6b7a", "#c49a1a")

_ROUNDING = 1e-7


def draw_learning_curve(folder: Path) -> None:
    """Draws `learning_curve.png` from what the run folder holds.

    Above, the return of evaluations and of training episodes. The band is one standard
    deviation between an evaluation's episodes, as far as any mean has been: beyond
    that there may be no returns at all. Below, the critic's loss and the replay check:
    how far a replay with unchanged weights is off, with the line that it must not
    cross.

    **Arguments:**

    - `folder`: a run folder with its description and metrics.
    """
    lines = read_metrics(folder)
    description = read_description(folder)
    title = "{} · {} · seed {}".format(
        description["environment"],
        description["policy"],
        description["train"]["seed"],
    )
    figure = new_figure((9.0, 6.5), title)
    panels = figure.subplot_mosaic(
        [["return", "return"], ["critic", "replay"]],
        height_ratios=[1.7, 1],
    )
    _draw_returns(panels["return"], lines)
    _draw_critic_loss(panels["critic"], lines)
    tolerance = description["decided"]["replay_tolerance"]
    _draw_replay_check(panels["replay"], lines, tolerance)
    for panel in panels.values():
        tidy(panel)
    figure.savefig(folder / PICTURE, dpi=150)


def _draw_returns(panel: Any, lines: list[Metrics]) -> None:
    steps, training_returns = _series(lines, TRAINING_RETURN)
    panel.plot(
        steps, training_returns, color=GREY, linewidth=1, label="training episodes"
    )
    steps, returns = _series(lines, EVALUATION)
    spread_at, spreads = _series(lines, EVALUATION_SPREAD)
    if returns and spread_at == steps:
        lowest = min(*returns, *training_returns, math.inf)
        highest = max(*returns, *training_returns, -math.inf)
        band = list(zip(returns, spreads, strict=True))
        panel.fill_between(
            steps,
            [max(mean - spread, lowest) for mean, spread in band],
            [min(mean + spread, highest) for mean, spread in band],
            color=BLUE,
            alpha=0.15,
            linewidth=0,
        )
    panel.plot(
        steps,
        returns,
        color=BLUE,
        linewidth=2,
        marker="o",
        markersize=4,
        label="evaluation",
    )
    panel.set_ylabel("Return per episode")
    panel.legend(frameon=False, loc="best")


def _draw_critic_loss(panel: Any, lines: list[Metrics]) -> None:
    steps, losses = _series(lines, CRITIC_LOSS)
    panel.plot(steps, losses, color=ORANGE, linewidth=1.2)
    if any(loss > 0 for loss in losses):
        panel.set_yscale("log")
    panel.set_ylabel("Critic loss")


def _draw_replay_check(panel: Any, lines: list[Metrics], tolerance: float) -> None:
    steps, ratios = _series(lines, LOG_RATIO)
    panel.plot(steps, ratios, color=ORANGE, linewidth=1.5, clip_on=False, zorder=3)
    panel.axhline(tolerance, color=GREY, linewidth=1, linestyle="--")
    panel.annotate(
        "training stops above this line",
        (0.02, tolerance),
        xycoords=("axes fraction", "data"),
        xytext=(0, -4),
        textcoords="offset points",
        verticalalignment="top",
        fontsize=8,
        color=GREY,
    )
    # Linear up to rounding errors, so that an exact 0 has a place on the axis.
    panel.set_yscale("symlog", linthresh=_ROUNDING)
    panel.set_ylim(0, 5 * max(tolerance, *ratios, _ROUNDING))
    panel.set_ylabel("Replay check")


def _series(
    lines: list[Metrics], name: str
) -> tuple[list[int | float], list[int | float]]:
    """The steps at which a metric was logged, and its values, without NaN."""
    points = [
        (line["step"], line[name])
        for line in lines
        if math.isfinite(line.get(name, math.nan))
    ]
    return [step for step, _ in points], [value for _, value in points]


def new_figure(size: tuple[float, float], title: str) -> Any:
    """An empty picture in the style of all of them.

    **Arguments:**

    - `size`: width and height in inches.
    - `title`: what stands above; may be empty.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=size, layout="constrained", facecolor="white")
    FigureCanvasAgg(figure)
    if title:
        figure.suptitle(title, fontsize=13, fontweight="bold")
    return figure


def tidy(panel: Any) -> None:
    """Axes, grid and frame in the style of all pictures; steps are on the x axis."""
    from matplotlib.ticker import EngFormatter

    panel.set_xlabel("Environment steps")
    panel.xaxis.set_major_formatter(EngFormatter(sep=""))
    panel.margins(x=0.02)
    panel.grid(color="#e6e8eb", linewidth=0.8)
    panel.set_axisbelow(True)
    for side in ("top", "right"):
        panel.spines[side].set_visible(False)
