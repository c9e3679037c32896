"""Puts measured tables into a page of the documentation.

```sh
python -m benchmarks.page measured/benchmark.json docs/pages/performance.md
```
"""

import re
import sys
from pathlib import Path

from .device import Device
from .json_file import read_json
from .records import Results
from .table import (
    bounds,
    markdown,
    ratios_table,
    restarts_table,
    returns_table,
    rows_table,
    sentences,
)


HEADING = "## Figures"
"""The section of speeds."""

RESTARTS_HEADING = "## Figures of beginning anew"
"""The section of restarts."""

RETURNS_HEADING = "## Figures of returns"
"""The section of what is learned."""


def pasted(page: str, results: Results) -> str:
    """A page with other figures in the sections for them.

    What a run has not measured stays as it is.

    **Raises:**

    `ValueError` unless there is one section for what was measured.
    """
    if results.rows:
        page = _with_section(page, HEADING, figures(results))
    if results.restarts:
        text = f"{_machine(results.device)}\n\n{markdown(restarts_table(results))}"
        page = _with_section(page, RESTARTS_HEADING, text)
    if results.returns:
        page = _with_section(page, RETURNS_HEADING, figures_of_returns(results))
    return page


def figures(results: Results) -> str:
    """The machine, the tables and the sentences, in Markdown."""
    device = results.device
    parts = [
        f"{_machine(device)} Limits: {device.flops_per_second / 1e9:,.0f} GFLOP/s, "
        f"{device.bytes_per_second / 1e9:,.0f} GB/s.",
        markdown(rows_table(results)),
    ]
    if results.ratios:
        parts.append(markdown(ratios_table(results)))
    parts.append("\n".join(f"- {sentence}" for sentence in sentences(results)))
    return "\n\n".join(parts).strip()


def figures_of_returns(results: Results) -> str:
    """The machine and what is learned on it, in Markdown."""
    assert results.returns is not None
    return "\n\n".join(
        (
            _machine(results.device),
            markdown(returns_table(results.returns)),
            f"- {bounds(results.returns)}",
        )
    )


def _machine(device: Device) -> str:
    return (
        f"{device.name}, {device.cores} cores of the host, Python {device.python}, "
        f"JAX {device.jax}."
    )


def _with_section(page: str, heading: str, text: str) -> str:
    """A page with another text under a heading."""
    pattern = rf"^{heading}\n.*?(?=^## |\Z)"
    sections = re.findall(pattern, page, re.DOTALL | re.MULTILINE)
    if len(sections) != 1:
        raise ValueError(
            f"expected the heading {heading!r} in the page once, got {len(sections)}"
        )
    (section,) = sections
    gap = "\n" if page.endswith(section) else "\n\n"
    return page.replace(section, f"{heading}\n\n{text}{gap}")


def main(arguments: list[str]) -> None:
    """Reads a JSON file and rewrites a page."""
    file, page = map(Path, arguments)
    page.write_text(pasted(page.read_text(), read_json(file)))


if __name__ == "__main__":
    main(sys.argv[1:])
