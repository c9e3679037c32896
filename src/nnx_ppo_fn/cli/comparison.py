"""The command `plot`: runs compared, with mean and spread over their seeds."""

import itertools as it
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .grouping import find_runs, Group, group_runs, labels
from .parsing import options_class, parse
from .progress import EVALUATION, number
from .style import (
    COLOURS,
    draw_band,
    draw_line,
    expect_picture_name,
    new_figure,
    note,
    save,
    tidy,
)
from .usage import tell, UsageError
from .values import FILE, FOLDERS, NAME


ABOUT = (
    "Compares runs in a picture: what differs in the seed alone is drawn as one.\n\n"
    "The line is the mean, the band one standard deviation; thin lines are seeds."
)
_NO_MEAN = "no steps in common"

PlotOptions = options_class(
    "PlotOptions",
    (
        "folders",
        FOLDERS.option(
            "DIR",
            "run folders, or folders with run folders in them.",
            hint="",
            positional=True,
        ),
        (),
    ),
    ("out", FILE.option("--out", "the picture."), Path("comparison.png")),
    ("metric", NAME.option("--metric", "what to draw."), EVALUATION),
)


def run(arguments: Sequence[str]) -> int:
    """Reads the options, draws the picture, and prints its numbers.

    **Arguments:**

    - `arguments`: the words after `plot`.

    **Returns:**

    The exit code.
    """
    options = parse(PlotOptions, arguments, command="plot", about=ABOUT)
    if not options.folders:
        raise UsageError("which runs? For example: nnx-ppo-fn plot runs")
    expect_picture_name(options.out)
    groups, left_out = group_runs(find_runs(options.folders), options.metric)
    for problem in left_out:
        tell(f"left out: {problem}")
    draw_comparison(groups, options.out, metric=options.metric)
    title, names = labels(groups)
    print(f"{title}: {options.metric}" if title else options.metric)
    width = max(map(len, names))
    for name, group in zip(names, groups, strict=True):
        print(f"  {name:{width}}  {_last_value(group)}")
    print(f"picture: {options.out}")
    return 0


def _last_value(group: Group) -> str:
    steps, means, spreads = group.mean_and_spread()
    if not group.has_mean:
        return _NO_MEAN
    spread = f" ± {number(spreads[-1])}" if len(group.curves) > 1 else ""
    return f"{number(means[-1])}{spread} after {steps[-1]:,.0f} steps"


def draw_comparison(groups: Sequence[Group], path: Path, *, metric: str) -> None:
    """Draws one line per group.

    **Arguments:**

    - `groups`: of runs; a band is one standard deviation over a group's seeds.
    - `path`: of the picture.
    - `metric`: its name, for the axis.

    **Raises:**

    `UsageError` where the picture cannot be written.
    """
    title, names = labels(groups)
    environments = list(dict.fromkeys(group.environment for group in groups))
    figure = new_figure((9.0, 1.5 + 4.0 * len(environments)), title)
    panels = figure.subplots(len(environments), squeeze=False)[:, 0]
    for environment, panel in zip(environments, panels, strict=True):
        if len(environments) > 1:
            panel.set_title(environment, fontsize=11, loc="left")
        inside = [
            (name, group)
            for name, group in zip(names, groups, strict=True)
            if group.environment == environment
        ]
        for (name, group), colour in zip(inside, it.cycle(COLOURS), strict=False):
            _draw_group(panel, group, name, colour)
        panel.set_ylabel("Return per episode" if metric == EVALUATION else metric)
        if len(groups) > 1 or len(groups[0].curves) > 1:
            panel.legend(frameon=False, loc="best")
        tidy(panel)
    if any(len(group.curves) > 1 and group.has_mean for group in groups):
        note(
            panels[0],
            "mean ± one standard deviation over seeds; thin: each seed",
            (1.0, 1.01),
            horizontalalignment="right",
        )
    save(figure, path)


def _draw_group(panel: Any, group: Group, name: str, colour: str) -> None:
    steps, means, spreads = group.mean_and_spread()
    if not group.has_mean:
        # The legend then is about the seeds.
        label = f"{name}, {_NO_MEAN}"
        for curve in group.curves:
            draw_line(panel, curve.steps, curve.values, color=colour, label=label)
            label = None
        return
    if len(group.curves) > 1:
        for curve in group.curves:
            style = {"color": colour, "linewidth": 0.7, "alpha": 0.45}
            draw_line(panel, curve.steps, curve.values, **style)
        seen = [curve.values for curve in group.curves]
        draw_band(panel, steps, means, spreads, colour=colour, seen=seen)
    draw_line(panel, steps, means, color=colour, linewidth=2, label=name)
