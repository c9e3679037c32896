"""What the README says works."""

import re
from pathlib import Path

import jax.numpy as jnp
import pytest


HOME = Path(__file__).parent.parent
README = (HOME / "README.md").read_text()
PYTHON = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
SHELL = re.findall(r"```sh\n(.*?)```", README, re.DOTALL)


@pytest.mark.parametrize("code", PYTHON)
def test_python_runs(code, capsys):
    names = {"__name__": "readme"}
    exec(compile(code, "README.md", "exec"), names)
    assert jnp.isfinite(float(capsys.readouterr().out.splitlines()[-1]))
    assert names["result"].total_steps >= 20_000


def test_ci_runs_the_test_command():
    (command,) = [line for line in SHELL if "pytest" in line]
    assert command.strip() in (HOME / ".ci" / "run").read_text().splitlines()
    assert len(command.strip().splitlines()) == 1
