"""Inputs of whole numbers, without a type checker, which would refuse them at once."""

import json
import os
import pathlib
import subprocess
import sys

import pytest


MEMORIES = ("LSTM", "GRU", "LRU", "MinGRU", "WindowedAttention")


@pytest.fixture(scope="module")
def found():
    script = pathlib.Path(__file__).with_name("whole_numbers.py")
    done = subprocess.run(
        [sys.executable, str(script), *MEMORIES],
        capture_output=True,
        text=True,
        env={
            **os.environ,
            "JAX_PLATFORMS": "cpu",
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        },
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_no_module_makes_whole_numbers_of_others(found):
    """A gradient would end there. What cannot take whole numbers says so."""
    for name, result in found["cut off"].items():
        assert result == 0 or "expected" in str(result), (name, result)
    assert [found["cut off"][name] for name in MEMORIES] == [0] * len(MEMORIES)


@pytest.mark.parametrize("name", MEMORIES)
def test_they_are_the_same_numbers_as_floats(found, name):
    differences = found["differences"][name]
    assert differences == dict.fromkeys(("uint8", "bool"), 0.0)
