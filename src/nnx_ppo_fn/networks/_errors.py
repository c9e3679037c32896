"""Errors that say where in the network something did not fit."""

import re
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from typing import Any

import jax.numpy as jnp
import jax.tree_util as jtu
from jaxtyping import TypeCheckError

from .._tree import by_path, shape_text


class CompositionError(ValueError):
    """Modules that do not fit together.

    The message names the place, for example
    `in Sequential[2] (LSTM): expected x [B, 64], got [256, 63]`; `path` holds the
    parts of the place, outermost first.
    """

    def __init__(self, problem: str, path: tuple[str, ...] = (), module: str = ""):
        self.problem = problem
        self.path = path
        self.module = module
        place = f"in {' > '.join(path)} ({module}): " if path else ""
        super().__init__(place + problem)


@contextmanager
def located(place: str, module: Any) -> Generator[None]:
    """Adds `place` to the path of every error that is raised inside.

    **Arguments:**

    - `place`: where the child stands, such as `Sequential[2]`.
    - `module`: the child that runs inside.
    """
    try:
        yield
    except CompositionError as error:
        raise CompositionError(
            error.problem,
            (place, *error.path),
            error.module or type(module).__name__,
        ) from error.__cause__
    except TypeCheckError as error:
        raise CompositionError(
            _shortened(error), (place,), type(module).__name__
        ) from error
    except Exception as error:
        error.add_note(f"in {place} ({type(module).__name__})")
        raise


@contextmanager
def plainly(module: Any) -> Generator[None]:
    """Says in one sentence what a type checker has found in a module by itself.

    **Arguments:**

    - `module`: what runs inside, and stands in no other module.
    """
    name = type(module).__name__
    try:
        yield
    except TypeCheckError as error:
        raise CompositionError(f"{name}: {_shortened(error)}") from error
    except CompositionError:
        raise
    except Exception as error:
        error.add_note(f"in {name}")
        raise


def expect_features(x: Any, size: int, *, name: str = "x", axes: str = "B") -> None:
    """Refuses an input whose features a module cannot take.

    A module that calls this annotates its input `Float[Array, "B features"]`, with a
    name for the size: a number would make a user's type checker speak first, and at
    greater length.

    **Arguments:**

    - `x`: what should be an array with the axes `axes`, then `size` features.
    - `size`: how many features.
    - `name`: of the argument, for the message.
    - `axes`: the leading axes, separated by commas.

    **Raises:**

    `CompositionError` that says what was expected and what came.
    """
    shape = getattr(x, "shape", None)
    ndim = axes.count(",") + 2
    if shape is None or len(shape) != ndim or shape[-1] != size:
        raise CompositionError(f"expected {name} [{axes}, {size}], got {shape_text(x)}")


def expect_rows_of(state: Any, x: Any, *, name: str = "x", axes: str = "B") -> None:
    """Refuses an input with other rows than the carry: they would broadcast.

    **Arguments:**

    - `state`: the carry, leaves `[B, ...]`.
    - `x`: an array with the axes `axes` in front.
    - `name`: of the argument, for the message.
    - `axes`: the leading axes, separated by commas; `B` is the last.

    **Raises:**

    `CompositionError` that says what was expected and what came.
    """
    leaves = jtu.tree_leaves(state)
    if not leaves or any(jnp.ndim(leaf) == 0 for leaf in leaves):
        raise CompositionError(
            "expected a carry with a row for each environment, as initialize_state "
            f"makes it, got {state!r}"
        )
    rows, batch = x.shape[axes.count(",")], len(leaves[0])
    if rows != batch:
        raise CompositionError(
            f"expected {name} [{axes}, ...] with B = {batch}, as in the carry, got "
            f"{shape_text(x)}"
        )


def expect_like(
    x: Any,
    expected: Mapping[str, tuple[tuple[int, ...], Any]],
    *,
    name: str = "x",
    axes: str = "B",
    source: str = "",
) -> dict[str, Any]:
    """Refuses a tree with other leaves than those that a module has been made for.

    **Arguments:**

    - `x`: what should be a tree of arrays with the axes `axes` in front.
    - `expected`: by path, such as `x['speed']`: the shape of a leaf without these axes,
      and its dtype, or `None` where any will do.
    - `name`: of the argument, as in the paths.
    - `axes`: the leading axes, separated by commas.
    - `source`: where the expectation comes from, for the message.

    **Returns:**

    The leaves of `x`, by path.

    **Raises:**

    `CompositionError` that names the leaf, says what was expected and what came.
    """
    leaves = by_path(x, name)
    differences = [f"{path} is missing" for path in expected if path not in leaves]
    differences += [f"{path} is not known" for path in leaves if path not in expected]
    if differences:
        raise CompositionError(
            f"expected {', '.join(expected)}{source}; {', '.join(differences)}"
        )
    leading = axes.count(",") + 1
    for path, (shape, dtype) in expected.items():
        leaf = leaves[path]
        came = getattr(leaf, "shape", None)
        fits = came is not None and len(came) >= leading and came[leading:] == shape
        if fits and (dtype is None or leaf.dtype == dtype):
            continue
        wanted = f"[{', '.join([axes, *map(str, shape)])}]"
        got = type(leaf).__name__ if came is None else shape_text(leaf)
        if dtype is not None:
            wanted = f"{dtype}{wanted}"
            got = got if came is None else f"{leaf.dtype}{got}"
        raise CompositionError(f"expected {path} {wanted}{source}, got {got}")
    return leaves


def expect_floating(x: Any) -> None:
    """Refuses integers, which noise and scaling would be rounded away from.

    **Raises:**

    `CompositionError` that says what came.
    """
    dtype = getattr(x, "dtype", None)
    if dtype is None or not jnp.issubdtype(dtype, jnp.floating):
        raise CompositionError(
            "expected x to be a floating-point array [B, ...], got "
            f"{type(x).__name__ if dtype is None else f'{dtype}{list(x.shape)}'}"
        )


def _shortened(error: TypeCheckError) -> str:
    """The sentence that matters in a type checker's report of many lines."""
    if isinstance(error.__context__, CompositionError):
        return error.__context__.problem
    report = str(error)
    argument = re.search(r"typechecking parameter '(\w+)'", report)
    method = re.search(r"return value of (?:\S+\.)?(\w+\.\w+)\.$", report, re.MULTILINE)
    values = re.search(
        r"^Actual value: (.+?)\nExpected type: (.+?)\.?$", report, re.MULTILINE | re.S
    )
    if values is None or (argument is None and method is None):
        return report
    actual, kind = values.groups()
    kind = re.sub(r"^<class '(.*)'>$", r"\1", kind).replace("jaxlib._jax.", "")
    if argument is not None:
        return f"expected {argument[1]} of type {kind}, got {actual}"
    return f"expected {method and method[1]} to return {kind}, got {actual}"
