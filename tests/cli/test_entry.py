"""The entry point of the installed program."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import nnx_ppo_fn


ENTRY = Path(nnx_ppo_fn.__file__).parent.parent / "nnx_ppo_fn_command.py"
# Whoever runs the tests may have made SIGINT ignored, which a process inherits.
PROGRAM = f"""
import runpy, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
sys.exit(runpy.run_path({str(ENTRY)!r})["main"]())
"""


@pytest.mark.skipif(os.name != "posix", reason="signals are POSIX's")
def test_an_interrupted_import_is_silent(tmp_path):
    (tmp_path / "nnx_ppo_fn").mkdir()
    (tmp_path / "nnx_ppo_fn" / "__init__.py").write_text(
        "import time\nprint('importing', flush=True)\ntime.sleep(60)"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
    )
    assert process.stdout.readline() == "importing\n"
    process.send_signal(signal.SIGINT)
    assert process.communicate(timeout=30) == ("", "")
    assert process.returncode == -signal.SIGINT
