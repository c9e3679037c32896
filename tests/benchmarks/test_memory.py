"""Keeping memory, where the C library can."""

import platform
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import memory


ROOT = Path(__file__).parents[2]


class Library:
    """A C library that remembers what it was asked for."""

    def __init__(self, answer):
        self.answer, self.asked = answer, {}

    def mallopt(self, option, value):
        self.asked[option] = value
        return self.answer


@pytest.mark.parametrize("answer, kept", [(1, True), (0, False)])
def test_glibc_is_asked_for_all_options_whatever_it_answers(monkeypatch, answer, kept):
    library = Library(answer)
    monkeypatch.setattr(memory.platform, "libc_ver", lambda: ("glibc", "2.36"))
    monkeypatch.setattr(memory.ctypes, "CDLL", lambda _: library)
    assert memory.keep_memory() is kept
    # M_ARENA_MAX, M_MMAP_MAX and M_TRIM_THRESHOLD of malloc.h; an int holds them.
    assert library.asked == {-8: 1, -4: 0, -1: 2_147_483_647}


@pytest.mark.parametrize("name", ["", "musl", "libc"])
def test_another_library_is_left_alone(monkeypatch, name):
    def refuse(_):
        raise OSError("no such library")

    monkeypatch.setattr(memory.platform, "libc_ver", lambda: (name, ""))
    monkeypatch.setattr(memory.ctypes, "CDLL", refuse)
    assert memory.keep_memory() is False


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="glibc's own options")
def test_glibc_knows_the_options():
    # In a process of its own, since it would hold for all tests after it.
    script = "from benchmarks.memory import keep_memory; assert keep_memory()"
    finished = subprocess.run([sys.executable, "-c", script], cwd=ROOT)
    assert finished.returncode == 0
