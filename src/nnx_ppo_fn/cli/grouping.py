"""Runs that differ in their seed alone belong together."""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, final

import numpy as np
from jaxtyping import Float

from .._suggest import did_you_mean
from ..runs import CONFIG, METRICS, read_description, read_metrics, series
from .usage import refusing, UsageError


# The seed, and settings that training does not notice.
_IGNORED = (
    "train.seed",
    "train.iterations_per_call",
    "train.checkpoint_every_steps",
    "train.ppo.logging_",
    "train.video.",
    "decided.",
    "versions.",
)
_NAMES = ("environment", "policy")
_MOST_SETTINGS = 3

Numbers = Float[np.ndarray, " points"]


@final
@dataclasses.dataclass(frozen=True)
class Curve:
    """One run's values of a metric.

    - `path`: the run folder.
    - `seed`: of the run.
    - `steps`: environment steps.
    - `values`: where there are any; none of them is NaN.
    """

    path: Path
    seed: int
    steps: Numbers
    values: Numbers


@final
@dataclasses.dataclass(frozen=True)
class Group:
    """Runs with the same settings.

    - `settings`: by dotted name.
    - `curves`: one per run.
    """

    settings: Mapping[str, Any]
    curves: Sequence[Curve]

    @property
    def environment(self) -> str:
        """The name of the environment."""
        return self.settings["environment"]

    @property
    def has_mean(self) -> bool:
        """Whether there are steps that all of the runs have been at."""
        return bool(len(self.mean_and_spread()[0]))

    @property
    def size(self) -> str:
        """How many runs there are, in words; the same seed twice tells no more."""
        seeds = len({curve.seed for curve in self.curves})
        words = f"{seeds} seed{'s' if seeds > 1 else ''}"
        runs = len(self.curves)
        return words if seeds == runs else f"{runs} runs of {words}"

    def mean_and_spread(self) -> tuple[Numbers, Numbers, Numbers]:
        """Steps, and over the seeds the mean and the standard deviation.

        As far as all of the runs go: beyond, the mean would jump where one ends. Runs
        that were evaluated at different steps are interpolated.
        """
        first = max(curve.steps[0] for curve in self.curves)
        last = min(curve.steps[-1] for curve in self.curves)
        steps = np.unique(np.concatenate([curve.steps for curve in self.curves]))
        steps = steps[(steps >= first) & (steps <= last)]
        values = [np.interp(steps, curve.steps, curve.values) for curve in self.curves]
        return steps, np.mean(values, axis=0), np.std(values, axis=0)


def find_runs(folders: Sequence[Path]) -> list[Path]:
    """The run folders in and below some folders, each once.

    **Raises:**

    `UsageError` for a folder without any.
    """
    found: dict[Path, Path] = {}
    for folder in folders:
        if not folder.is_dir():
            raise UsageError(f"there is no folder {folder}")
        # A run with metrics: one that is being set up has none yet.
        runs = [
            path.parent
            for path in sorted(folder.rglob(CONFIG))
            if (path.parent / METRICS).is_file()
        ]
        if not runs:
            raise UsageError(f"{folder} holds no run: there is no {CONFIG} in it")
        found |= {run.resolve(): run for run in runs}
    return list(found.values())


def group_runs(runs: Sequence[Path], metric: str) -> tuple[list[Group], list[str]]:
    """Puts runs together that differ in their seed alone.

    **Arguments:**

    - `runs`: run folders.
    - `metric`: the name of the metric to read.

    **Returns:**

    `(groups, left_out)`: groups in the order in which their first runs come, and why
    some runs are in none: they cannot be read, or have no value of the metric.

    **Raises:**

    `UsageError` where that is all of them.
    """
    groups: dict[str, Group] = {}
    left_out: list[str] = []
    for path in runs:
        try:
            description = _read_description(path)
            settings = _settings(description)
            curve = _read_curve(path, description, metric)
        except UsageError as error:
            left_out.append(str(error))
            continue
        key = json.dumps(settings, sort_keys=True)
        known = groups[key].curves if key in groups else ()
        groups[key] = Group(settings, (*known, curve))
    if not groups:
        raise UsageError(left_out[0])
    return list(groups.values()), left_out


def labels(groups: Sequence[Group]) -> tuple[str, list[str]]:
    """What all groups have in common, and a name for each of them.

    **Returns:**

    `(title, names)`: the environment and the policy are in the title where they are
    the same for all, and in the names otherwise. There the settings follow in which an
    environment's groups differ.
    """
    differing = [
        name
        for name in _NAMES
        if len({group.settings.get(name) for group in groups}) > 1
    ]
    common = [str(groups[0].settings[name]) for name in _NAMES if name not in differing]
    return " · ".join(common), [_label(group, groups, differing) for group in groups]


def _label(group: Group, groups: Sequence[Group], differing: Sequence[str]) -> str:
    # Policies share the settings of an environment; those of another are its own.
    peers = [one for one in groups if one.environment == group.environment]
    settings = [
        f"{name.rpartition('.')[2]} {_short(value)}"
        for name, value in group.settings.items()
        if name not in _NAMES
        and all(name in one.settings for one in peers)
        and any(one.settings[name] != value for one in peers)
    ]
    more = ["…"] if len(settings) > _MOST_SETTINGS else []
    words = [str(group.settings[name]) for name in differing]
    words += settings[:_MOST_SETTINGS] + more
    return f"{', '.join(words)} ({group.size})" if words else group.size


def _short(value: Any) -> str:
    return "none" if value is None else str(value)


def _read_description(path: Path) -> Mapping[str, Any]:
    with refusing(ValueError, OSError):
        return _flat(read_description(path))


def _settings(description: Mapping[str, Any]) -> Mapping[str, Any]:
    """What the runs of a group have in common."""
    return {
        name: value
        for name, value in description.items()
        if not name.startswith(_IGNORED)
    }


def _flat(node: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    leaves: dict[str, Any] = {}
    for name, value in node.items():
        if isinstance(value, dict):
            leaves |= _flat(value, f"{prefix}{name}.")
        else:
            leaves[prefix + name] = value
    return leaves


def _read_curve(path: Path, description: Mapping[str, Any], metric: str) -> Curve:
    with refusing(ValueError, OSError):
        lines = read_metrics(path)
    steps, values = series(lines, metric)
    if not steps:
        names = sorted({name for line in lines for name in line} - {"step"})
        if metric in names:
            raise UsageError(f"{path} has no finite value of {metric}")
        listed = ", ".join(names) or "none"
        raise UsageError(
            f"{path} has no metric {metric!r}{did_you_mean(metric, names)}; it has "
            f"{listed}"
        )
    return Curve(
        path,
        seed=description.get("train.seed", 0),
        steps=np.array(steps, np.float64),
        values=np.array(values, np.float64),
    )
