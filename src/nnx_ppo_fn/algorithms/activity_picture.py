"""A picture of what the modules of a network did in an episode."""

import io
from collections.abc import Sequence
from typing import Any, final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from .._expect import expect_count, expect_range
from .._extras import import_extra
from ..networks._wrapping import matching
from ..networks.graph import SVG
from .recorded_arrays import NETWORK, numbers_in
from .recording import Recording


_MOST_LINES = 4
_WIDTH, _BORDER = 9.0, 0.9
_MAP_HEIGHT, _LINE_HEIGHT = 1.15, 0.7
_COLOURS = ("#1f5fa8", "#e08214", "#3a8f5c", "#8e5ea2")
_UNFINISHED = "left unfinished"
_INK, _GREY, _END = "#22272e", "#8a8f98", "#b5483a"


@final
class _Row(NamedTuple):
    """A row of the picture: its name, and numbers `[steps, features]`."""

    name: str
    values: NDArray[Any]

    @property
    def is_map(self) -> bool:
        """Whether there are too many features for lines."""
        return self.values.shape[1] > _MOST_LINES


def draw_activity(
    recording: Recording,
    select: str | Sequence[str] | None = None,
    *,
    environment: int = 0,
    step_seconds: float | None = None,
) -> SVG:
    """Draws what the modules of a network did in one episode, step by step.

    There is a row for each module that was recorded, or for each array of it if it put
    out a tree, and then rows for the actions and the rewards. Up to four features are
    lines. More are a map with a line of pixels for each, white where it is 0, blue
    above and red below; every row has a scale of its own, which stands beside it. The
    picture ends with the episode and says how that ended, with a red line if it did.

    It needs matplotlib, which the extra `plot` brings.

    **Arguments:**

    - `recording`: from `record_activations_rollout`.
    - `select`: paths of the modules to draw, one or several, with `*` for any
      characters, as in `with_recording`; `None` draws all that were recorded.
    - `environment`: whose episode.
    - `step_seconds`: how long a step lasts; time is then in seconds.

    **Returns:**

    An SVG document, a `str`; the same for the same recording.

    **Raises:**

    `ValueError` for an environment or a path that is not in the recording, and for
    modules that put out no numbers; an `ImportError` that says what to install where
    matplotlib is missing.

    **Example:**

    ```python
    picture = draw_activity(recording, ["[2].S1", "[2].M1"], step_seconds=0.02)
    pathlib.Path("activity.svg").write_text(picture)
    ```
    """
    _, n_envs = recording.ongoing.shape
    expect_count("environment", environment, least=0)
    if environment >= n_envs:
        raise ValueError(
            f"expected environment to be below {n_envs}, as many as were recorded, got "
            f"{environment}"
        )
    if step_seconds is not None:
        expect_range("step_seconds", step_seconds, 1e-9, 1e9)
    matplotlib = import_extra("matplotlib", extra="plot", purpose="draw_activity")
    rows = _rows(recording, select, environment)
    steady = {"svg.hashsalt": "nnx_ppo_fn", "svg.fonttype": "none"}
    with matplotlib.rc_context(steady):
        length, how = _ended(recording, environment)
        figure = _drawn(rows, length, step_seconds, has_end=how != _UNFINISHED)
        title = f"environment {environment}: {length} steps, {how}"
        figure.suptitle(title, fontsize=10, color=_INK)
        file = io.StringIO()
        figure.savefig(file, format="svg", metadata={"Date": None})
    text = file.getvalue()
    return SVG(text[text.index("<svg") :])


def _rows(
    recording: Recording, select: str | Sequence[str] | None, environment: int
) -> list[_Row]:
    """The numbers of one episode, the modules' first."""
    paths = list(recording.activations)
    if select is not None:
        patterns = [select] if isinstance(select, str) else select
        chosen = {path for one in patterns for path in matching(one, paths)}
        paths = [path for path in paths if path in chosen]
    length = int(recording.lifespans[environment])

    def found(tree: Any, name: str) -> list[_Row]:
        return [
            _Row(place, array[:length, environment].reshape(length, -1))
            for place, array in numbers_in(tree, name)
            if array.dtype.kind in "fiub" and array[0, 0].size
        ]

    modules = [
        row
        for path in paths
        for row in found(recording.activations[path], path or NETWORK)
    ]
    if paths and not modules:
        raise ValueError(
            "expected modules that put out numbers, but there are none in what "
            f"{', '.join(map(repr, paths))} put out"
        )
    return (
        modules
        + found(recording.actions, "actions")
        + found(recording.rewards, "rewards")
    )


def _ended(recording: Recording, environment: int) -> tuple[int, str]:
    """How many steps an episode has, and how it ended."""
    length = int(recording.lifespans[environment])
    if not recording.done[length - 1, environment]:
        return length, _UNFINISHED
    by_limit = bool(recording.truncated[length - 1, environment])
    return length, "ended by a time limit" if by_limit else "terminated"


def _drawn(
    rows: Sequence[_Row], length: int, step_seconds: float | None, *, has_end: bool
) -> Any:
    """A figure with all rows above each other, and a place for scales on the right."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    heights = [_MAP_HEIGHT if row.is_map else _LINE_HEIGHT for row in rows]
    figure = Figure((_WIDTH, sum(heights) + _BORDER), layout="constrained")
    grid = figure.add_gridspec(
        len(rows), 2, height_ratios=heights, width_ratios=[50, 1]
    )
    scale = 1.0 if step_seconds is None else step_seconds
    panels: list[Any] = []
    for index, row in enumerate(rows):
        panel = figure.add_subplot(grid[index, 0], sharex=panels[0] if panels else None)
        side = figure.add_subplot(grid[index, 1])
        (_draw_map if row.is_map else _draw_lines)(figure, panel, side, row, scale)
        panel.set_ylabel(
            row.name, rotation=0, ha="right", va="center", fontsize=9, color=_INK
        )
        panel.tick_params(labelsize=7, labelbottom=index == len(rows) - 1)
        panels.append(panel)
    panels[0].set_xlim(-0.5 * scale, (length - 0.5) * scale)
    in_steps = step_seconds is None
    panels[-1].xaxis.set_major_locator(MaxNLocator("auto", integer=in_steps))
    panels[-1].set_xlabel("step" if in_steps else "seconds", fontsize=9)
    for panel in panels if has_end else ():
        panel.axvline((length - 0.5) * scale, color=_END, linewidth=2, clip_on=False)
    return figure


def _draw_map(figure: Any, panel: Any, side: Any, row: _Row, scale: float) -> None:
    """A line of pixels for each feature, and the scale of the colours."""
    from matplotlib import colormaps

    values = row.values.astype(np.float64)
    finite = np.abs(values[np.isfinite(values)])
    largest = float(finite.max(initial=0.0)) or 1.0
    steps, features = values.shape
    image = panel.imshow(
        values.T,
        cmap=colormaps["RdBu"].with_extremes(bad=_GREY),
        vmin=-largest,
        vmax=largest,
        aspect="auto",
        interpolation="nearest",
        extent=(-0.5 * scale, (steps - 0.5) * scale, features - 0.5, -0.5),
    )
    panel.set_yticks([0, features - 1])
    bar = figure.colorbar(image, cax=side, ticks=[-largest, 0, largest])
    bar.ax.set_yticklabels([f"{-largest:.2g}", "0", f"{largest:.2g}"], fontsize=7)


def _draw_lines(figure: Any, panel: Any, side: Any, row: _Row, scale: float) -> None:
    """A line for each feature, and which is which."""
    times = scale * np.arange(len(row.values))
    style = "default" if row.values.dtype.kind == "f" else "steps-mid"
    for feature, values in enumerate(row.values.T):
        panel.plot(
            times,
            values.astype(np.float64),
            color=_COLOURS[feature],
            linewidth=1.2,
            drawstyle=style,
            label=str(feature),
        )
    panel.margins(y=0.15)
    for edge in ("top", "right"):
        panel.spines[edge].set_visible(False)
    side.axis("off")
    if row.values.shape[1] > 1:
        lines, names = panel.get_legend_handles_labels()
        side.legend(
            lines, names, loc="center left", frameon=False, fontsize=7, handlelength=1
        )
