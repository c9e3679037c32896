"""What a type checker infers of modules is what their values are."""

import runpy
import typing
from pathlib import Path

from beartype.door import is_bearable


FILE = Path(__file__).with_name("inferred_types.py")


def test_values_have_the_types_that_pyright_infers(monkeypatch):
    checked = []

    def check_type(value, kind):
        assert is_bearable(value, kind), f"expected {kind}, got {type(value)}"
        checked.append(kind)
        return value

    monkeypatch.setattr(typing, "assert_type", check_type)
    runpy.run_path(str(FILE))
    assert len(checked) == FILE.read_text().count("assert_type(")
