"""The picture of a run: its learning curve, and whether the replay agreed."""

from pathlib import Path
from typing import Any

from ..algorithms.types import Metrics
from ..runs import PICTURE, read_description, read_metrics, series
from .progress import (
    CRITIC_LOSS,
    EVALUATION,
    EVALUATION_SPREAD,
    LOG_RATIO,
    TRAINING_RETURN,
)
from .style import (
    BLUE,
    draw_band,
    draw_line,
    GREY,
    new_figure,
    note,
    ORANGE,
    save,
    tidy,
)


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

    **Raises:**

    `UsageError` where it cannot be written; what `read_metrics` and `read_description`
    raise.
    """
    lines, description = read_metrics(folder), read_description(folder)
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
    save(figure, folder / PICTURE)


def _draw_returns(panel: Any, lines: list[Metrics]) -> None:
    steps, training_returns = series(lines, TRAINING_RETURN)
    draw_line(
        panel,
        steps,
        training_returns,
        color=GREY,
        linewidth=1,
        label="training episodes",
    )
    steps, returns = series(lines, EVALUATION)
    spread_at, spreads = series(lines, EVALUATION_SPREAD)
    if returns and spread_at == steps:
        seen = [returns, training_returns]
        draw_band(panel, steps, returns, spreads, colour=BLUE, seen=seen)
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
    steps, losses = series(lines, CRITIC_LOSS)
    draw_line(panel, steps, losses, color=ORANGE, linewidth=1.2)
    if any(loss > 0 for loss in losses):
        panel.set_yscale("log")
    panel.set_ylabel("Critic loss")


def _draw_replay_check(panel: Any, lines: list[Metrics], tolerance: float) -> None:
    steps, ratios = series(lines, LOG_RATIO)
    style = {"color": ORANGE, "linewidth": 1.5, "clip_on": False, "zorder": 3}
    draw_line(panel, steps, ratios, **style)
    panel.axhline(tolerance, color=GREY, linewidth=1, linestyle="--")
    note(
        panel,
        "training stops above this line",
        (0.02, tolerance),
        xycoords=("axes fraction", "data"),
        xytext=(0, -4),
        textcoords="offset points",
        verticalalignment="top",
    )
    # Linear up to rounding errors, so that an exact 0 has a place on the axis.
    panel.set_yscale("symlog", linthresh=_ROUNDING)
    panel.set_ylim(0, 5 * max(tolerance, *ratios, _ROUNDING))
    panel.set_ylabel("Replay check")
