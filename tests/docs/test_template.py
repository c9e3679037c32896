"""The template works as it is when its folder is copied, and catches mistakes."""

import os
import shutil
import subprocess
import sys

import pytest

from pages import PAGES


TEMPLATE = PAGES / "template"


@pytest.fixture
def copied(tmp_path):
    """The folder, without what is left of earlier runs."""
    shutil.copytree(
        TEMPLATE, tmp_path / "mine", ignore=shutil.ignore_patterns("__pycache__")
    )
    return tmp_path / "mine"


def run_pytest(folder, *options):
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options],
        cwd=folder,
        env={**os.environ, "JAX_DISABLE_MOST_OPTIMIZATIONS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_tests_of_the_template_pass(copied):
    found = run_pytest(copied)
    assert found.returncode == 0, found.stdout
    assert "6 passed" in found.stdout


def test_a_wrong_shape_is_told_with_the_place_of_the_module(copied):
    modules = copied / "my_modules.py"
    right = "return next_state, jnp.tanh(next_state)"
    text = modules.read_text()
    assert right in text
    modules.write_text(text.replace(right, "return next_state, next_state[:, :1]"))
    found = run_pytest(copied, "-k", "network")
    assert found.returncode == 1
    assert "in Sequential[2] (Leaky): expected Leaky.recur to return" in found.stdout
