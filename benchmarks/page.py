"""Puts measured tables into a page of the documentation.

```sh
python -m benchmarks.page measured/benchmark.json docs/pages/performance.md
```
"""

import re
import sys
from pathlib import Path

from .json_file import read_json
from .records import Results
from .table import markdown, ratios_table, restarts_table, rows_table, sentences


HEADING = "## Figures"
"""The section that is written anew."""

_SECTION = re.compile(rf"^{HEADING}\n.*?(?=^## |\Z)", re.DOTALL | re.MULTILINE)


def pasted(page: str, results: Results) -> str:
    """A page with other figures in the section for them.

    **Raises:**

    `ValueError` unless there is one such section.
    """
    sections = _SECTION.findall(page)
    if len(sections) != 1:
        raise ValueError(
            f"expected the heading {HEADING!r} in the page once, got {len(sections)}"
        )
    (section,) = sections
    gap = "\n" if page.endswith(section) else "\n\n"
    return page.replace(section, f"{HEADING}\n\n{figures(results)}{gap}")


def figures(results: Results) -> str:
    """The machine, the tables and the sentences, in Markdown."""
    device = results.device
    parts = [
        f"{device.name}, {device.cores} cores of the host, Python {device.python}, "
        f"JAX {device.jax}. Limits: {device.flops_per_second / 1e9:,.0f} GFLOP/s, "
        f"{device.bytes_per_second / 1e9:,.0f} GB/s.",
        markdown(rows_table(results)),
    ]
    if results.ratios:
        parts.append(markdown(ratios_table(results)))
    if results.restarts:
        parts.append(markdown(restarts_table(results)))
    parts.append("\n".join(f"- {sentence}" for sentence in sentences(results)))
    return "\n\n".join(parts).strip()


def main(arguments: list[str]) -> None:
    """Reads a JSON file and rewrites a page."""
    file, page = map(Path, arguments)
    page.write_text(pasted(page.read_text(), read_json(file)))


if __name__ == "__main__":
    main(sys.argv[1:])
