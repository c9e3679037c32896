"""How all pictures look, and how they are written."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from .._files import expect_place, replacing
from .usage import refusing, UsageError


BLUE = "#1f5fa8"
ORANGE = "#e08214"
GREY = "#8a8f98"
COLOURS = (BLUE, ORANGE, "#3a8f5c", "#8e5ea2", "#b5483a", "#5f6b7a", "#c49a1a")


def new_figure(size: tuple[float, float], title: str) -> Any:
    """An empty picture.

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
    """Axes, grid and frame of a panel; steps, and all of them, are on its x axis."""
    from matplotlib.ticker import EngFormatter, MaxNLocator

    panel.set_xlabel("Environment steps")
    panel.xaxis.set_major_locator(
        MaxNLocator("auto", integer=True, steps=[1, 2, 5, 10])
    )
    panel.xaxis.set_major_formatter(EngFormatter(sep=""))
    panel.margins(x=0.02)
    first, last = panel.dataLim.intervalx
    if first == last:
        panel.set_xticks([first])
    panel.grid(color="#e6e8eb", linewidth=0.8)
    panel.set_axisbelow(True)
    for side in ("top", "right"):
        panel.spines[side].set_visible(False)


def draw_band(
    panel: Any,
    steps: Any,
    means: Any,
    spreads: Any,
    *,
    colour: str,
    seen: Sequence[Any],
) -> None:
    """Draws a spread around a mean.

    **Arguments:**

    - `panel`: where to.
    - `steps`, `means`, `spreads`: one number each per point.
    - `colour`: of the mean's line.
    - `seen`: series of values. The band ends where none of them has been, since beyond
      there may be no such values.
    """
    values = np.concatenate([np.asarray(each, np.float64) for each in seen])
    limits = values.min(), values.max()
    panel.fill_between(
        steps,
        np.clip(np.subtract(means, spreads), *limits),
        np.clip(np.add(means, spreads), *limits),
        color=colour,
        alpha=0.15,
        linewidth=0,
    )


def note(panel: Any, text: str, place: tuple[float, float], **options: Any) -> None:
    """Writes a small remark.

    **Arguments:**

    - `panel`: where to.
    - `text`: the remark.
    - `place`: the panel's fractions, unless `options` say otherwise.
    - `options`: of matplotlib's `annotate`.
    """
    where = {"xycoords": "axes fraction", **options}
    panel.annotate(text, place, fontsize=8, color=GREY, **where)


def save(figure: Any, path: Path) -> None:
    """Writes a picture, in the format that its name ends in; folders are made.

    **Raises:**

    `UsageError` where it cannot be written.
    """
    expect_picture_name(path)
    with refusing(OSError, ValueError, saying=f"cannot write {path}"):
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as unfinished:
            figure.savefig(unfinished, dpi=150, format=path.suffix[1:].lower())


def expect_picture_name(path: Path) -> None:
    """Raises `UsageError` unless a picture can be written under this name."""
    from matplotlib.backend_bases import FigureCanvasBase

    known = FigureCanvasBase.get_supported_filetypes()
    if path.suffix[1:].lower() not in known:
        raise UsageError(
            f"cannot write {path}: expected a name that ends in .png, .svg or .pdf"
        )
    with refusing(OSError, saying=f"cannot write {path}"):
        expect_place(path)


def draw_line(panel: Any, steps: Any, values: Any, **options: Any) -> None:
    """Draws a line, or a dot where there is one point alone.

    **Arguments:**

    - `panel`: where to.
    - `steps`, `values`: one number each per point.
    - `options`: of matplotlib's `plot`.
    """
    dots = {"marker": "o", "markersize": 4} if len(steps) == 1 else {}
    panel.plot(steps, values, **{**dots, **options})
