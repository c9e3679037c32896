"""Draws the episode in `looking.md` by running that page, down to the picture.

`python docs/pictures/activity.py` takes a few seconds.
"""

import os
import re
from pathlib import Path


PAGES = Path(__file__).parents[1] / "pages"


if __name__ == "__main__":
    text = (PAGES / "looking.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    os.chdir(PAGES / "pictures")
    page: dict[str, object] = {}
    for block in blocks[:2]:
        exec(block, page)
