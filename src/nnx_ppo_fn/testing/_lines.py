"""The line of an author's code that an operation of a jaxpr comes from."""

from pathlib import Path
from typing import Any, final

import equinox
import jax
import jaxtyping


JAX_RANDOM = str(Path(str(jax.__file__)).parent / "_src" / "random")

_PACKAGE = Path(__file__).parents[1]
_LIBRARIES = tuple(
    str(Path(str(library.__file__)).parent) for library in (jax, equinox, jaxtyping)
)
_MACHINERY = (
    str(_PACKAGE / "_keys.py"),
    str(_PACKAGE / "networks" / "types.py"),
    str(_PACKAGE / "networks" / "_routing.py"),
    str(_PACKAGE / "networks" / "graph"),
    str(_PACKAGE / "testing"),
)


@final
class Line:
    """Where an operation was written; worked out only once it is printed."""

    def __init__(self, equation: Any):
        self._equation = equation

    def __str__(self) -> str:
        traceback = self._equation.source_info.traceback
        for frame in () if traceback is None else traceback.frames:
            if not frame.file_name.startswith((*_LIBRARIES, *_MACHINERY, "<")):
                name = Path(frame.file_name).name
                return f"{name}:{frame.line_num}, in {frame.function_name}"
        return "in a function of the library"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Line) and str(self) == str(other)

    def __hash__(self) -> int:
        return hash(str(self))


def is_of_library(equation: Any) -> bool:
    """Whether an operation was written inside `jax.random`."""
    traceback = equation.source_info.traceback
    for frame in () if traceback is None else traceback.frames:
        if frame.file_name.startswith(JAX_RANDOM):
            return True
        if not frame.file_name.startswith((*_LIBRARIES, "<")):
            return False
    return False
