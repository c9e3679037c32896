"""What the README says works."""

import re
from pathlib import Path


HOME = Path(__file__).parent.parent
README = (HOME / "README.md").read_text()
PYTHON = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
SHELL = re.findall(r"```sh\n(.*?)```", README, re.DOTALL)


def test_the_example_learns(capsys):
    (code,) = PYTHON
    exec(compile(code, "README.md", "exec"), {"__name__": "readme"})
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert int(lines[-1][0]) >= 120_000
    assert float(lines[-1][1]) > 2 * float(lines[0][1])


def test_ci_runs_the_test_command():
    (command,) = [line for line in SHELL if "pytest" in line]
    assert command.strip() in (HOME / ".ci" / "run").read_text().splitlines()
    assert len(command.strip().splitlines()) == 1
