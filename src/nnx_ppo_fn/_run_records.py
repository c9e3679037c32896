"""Reads what a run has written down: its description and its metrics."""

import contextlib
import json
import math
from collections.abc import Generator, Mapping, Sequence
from pathlib import Path
from typing import Any

from .algorithms.types import Metrics


CONFIG = "config.json"
METRICS = "metrics.jsonl"


def read_description(folder: Path) -> dict[str, Any]:
    """What `config.json` says.

    **Raises:**

    `OSError` or `ValueError` where it cannot be read, or does not describe a run.
    """
    path = folder / CONFIG
    with blaming(path):
        description = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(description, dict):
            raise ValueError("it does not hold an object")
        for name in ("environment", "policy"):
            if not isinstance(said(description, name), str):
                raise ValueError(f"{name!r} is not a name")
        return description


def read_metrics(folder: Path) -> list[Metrics]:
    """All lines of `metrics.jsonl`; a `null` is NaN again.

    A last line that was cut short is left out: the run has died, or is writing it.

    **Raises:**

    `OSError` or `ValueError` where they cannot be read.
    """
    path = folder / METRICS
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    metrics: list[Metrics] = []
    for position, line in enumerate(lines, 1):
        try:
            metrics.append(_numbers(json.loads(line)))
        except json.JSONDecodeError as error:
            if position < len(lines):
                raise ValueError(f"{path}, line {position}: {error}") from error
        except ValueError as error:
            raise ValueError(f"{path}, line {position}: {error}") from error
    return metrics


def _numbers(line: Any) -> Metrics:
    """A line as metrics; `ValueError` if it is none."""
    if not isinstance(line, dict) or not isinstance(line.get("step"), int | float):
        raise ValueError("expected numbers by name, with a step")
    for name, value in line.items():
        if not isinstance(value, int | float | None):
            raise ValueError(f"expected a number as {name!r}, got {value!r}")
    return {name: math.nan if value is None else value for name, value in line.items()}


def series(
    lines: Sequence[Metrics], name: str
) -> tuple[list[int | float], list[int | float]]:
    """The steps at which a metric was logged, and its values.

    **Arguments:**

    - `lines`: what `read_metrics` returned.
    - `name`: of the metric. What is not finite is left out.
    """
    points = [
        (line["step"], line[name])
        for line in lines
        if math.isfinite(line.get(name, math.nan))
    ]
    return [step for step, _ in points], [value for _, value in points]


def said(description: Mapping[str, Any], name: str) -> Any:
    """What a description says of something; `ValueError` where it does not."""
    if name not in description:
        raise ValueError(f"it does not say which {name!r} it was")
    return description[name]


@contextlib.contextmanager
def blaming(path: Path) -> Generator[None, None, None]:
    """A context in which whatever fails is due to what is written in a file."""
    try:
        yield
    except (OSError, ImportError):
        raise
    except Exception as error:
        # An edited value may fail as late, and as oddly, as where it is used.
        raise ValueError(f"{path} is damaged or of another version: {error}") from error
