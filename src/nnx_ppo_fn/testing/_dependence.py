"""Which inputs of a traced function its outputs depend on."""

from collections.abc import Callable
from typing import Any

import jax.tree_util as jtu
from jax.interpreters import partial_eval

from ._traces import Trace


Chosen = Callable[[str], bool]
"""Says of an output's path, such as `.output`, whether it is asked about."""


def used_leaves(
    trace: Trace, arguments: Any, chosen: Chosen | None = None
) -> list[tuple[str, Any]]:
    """Path and value of the leaves of the arguments that outputs depend on.

    **Arguments:**

    - `trace`: of a function.
    - `arguments`: the tuple of its arguments.
    - `chosen`: which outputs are asked about; all of them by default.
    """
    _, used = _reduced(trace, chosen)
    leaves = jtu.tree_leaves_with_path(arguments)
    return [
        (jtu.keystr(path), leaf)
        for (path, leaf), is_used in zip(leaves, used, strict=True)
        if is_used
    ]


def computation(trace: Trace, chosen: Chosen) -> str:
    """The program that computes the chosen outputs and nothing else, as text."""
    jaxpr, _ = _reduced(trace, chosen)
    return str(jaxpr)


def _reduced(trace: Trace, chosen: Chosen | None) -> tuple[Any, list[bool]]:
    jaxpr = trace.jaxpr.jaxpr
    outputs = jtu.tree_leaves_with_path(trace.result)
    wanted = [chosen is None or chosen(jtu.keystr(path)) for path, _ in outputs]
    return partial_eval.dce_jaxpr(jaxpr, wanted)
