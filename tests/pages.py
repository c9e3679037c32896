"""The pages of the documentation as the tests read them: blocks of code, tables."""

import re
from pathlib import Path
from typing import NamedTuple


HOME = Path(__file__).parent.parent
PAGES = HOME / "docs" / "pages"
README = HOME / "README.md"

_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


class Block(NamedTuple):
    """A fenced block: its language, and what stands in it."""

    language: str
    text: str


def blocks(page: Path) -> list[Block]:
    """All fenced blocks of a page, from top to bottom."""
    return [Block(*found) for found in _BLOCK.findall(page.read_text())]


def python_blocks(page: Path) -> list[str]:
    """The Python in a page."""
    return [text for language, text in blocks(page) if language == "python"]


def commands(page: Path) -> list[list[str]]:
    """Every call of `nnx-ppo-fn` in the shell blocks of a page, as its words."""
    words = [
        re.sub(r"^(\w+=\S+ )+", "", part.strip()).split()
        for language, text in blocks(page)
        if language == "sh"
        for line in text.splitlines()
        for part in line.split("&&")
    ]
    return [call[1:] for call in words if call and call[0].endswith("nnx-ppo-fn")]


def rows(page: Path, heading: str | None = None) -> list[list[str]]:
    """The rows of all tables of a page, or of those with a column called `heading`."""
    found: list[list[str]] = []
    wanted = False
    previous = ""
    for line in page.read_text().splitlines():
        if re.fullmatch(r"[|\s:-]+", line) and previous.startswith("|"):
            wanted = heading is None or heading in _cells(previous)
        elif not line.startswith("|"):
            wanted = False
        elif wanted:
            found.append(_cells(line))
        previous = line
    return found


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip().strip("|").split(" | ")]
