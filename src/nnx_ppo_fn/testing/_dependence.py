"""Which inputs of a traced function its outputs depend on."""

from typing import Any

import jax.tree_util as jtu
from jax.interpreters import partial_eval

from ._traces import Trace


def used_leaves(trace: Trace, arguments: Any) -> list[tuple[str, Any]]:
    """Path and value of the leaves of the arguments that the result depends on.

    **Arguments:**

    - `trace`: of a function.
    - `arguments`: the tuple of its arguments.
    """
    jaxpr = trace.jaxpr.jaxpr
    _, used = partial_eval.dce_jaxpr(jaxpr, [True] * len(jaxpr.outvars))
    leaves = jtu.tree_leaves_with_path(arguments)
    return [
        (jtu.keystr(path), leaf)
        for (path, leaf), is_used in zip(leaves, used, strict=True)
        if is_used
    ]
