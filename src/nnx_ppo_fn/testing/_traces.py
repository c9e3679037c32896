"""The jaxprs of a module's methods, and the shapes that go in and come out."""

import contextlib
import dataclasses
from collections.abc import Generator
from typing import Any, final

import jax
import jax.tree_util as jtu
from jax.core import Tracer

from .._keys import Held
from .violation import LawViolation


@final
@dataclasses.dataclass(frozen=True)
class Trace:
    """One traced method.

    - `jaxpr`: a `ClosedJaxpr` from flat arguments to flat results.
    - `result`: the tree of `jax.ShapeDtypeStruct`s that the method returns.
    """

    jaxpr: Any
    result: Any


@contextlib.contextmanager
def without_leaks() -> Generator[None]:
    """Turns JAX's error about a leaked tracer into a violation of the law of carry."""
    try:
        yield
    except jax.errors.UnexpectedTracerError as error:
        raise leak() from error


def leak() -> LawViolation:
    """The violation of a module that remembers outside the carry."""
    return LawViolation(
        "carry",
        "a value from an earlier call lives on outside the carry",
        cause="the module writes into something mutable (a list, a dict, a closure, a "
        "global). Modules are pure: put what must live on into `next_state`, and "
        "running statistics into `rollout_extras` and `update_statistics`. Or a "
        "container calls a child inside cond, scan or vmap: call it outside, and "
        "choose among the results",
    )


def leaked(module: Any, first: Trace, later: Trace) -> bool:
    """Whether `later` meets a traced value that `first` left behind.

    Values that are being traced further outside, where whoever checks is traced
    himself, are the module's own or stand in `first` too.
    """
    known = {id(value) for value in (*first.jaxpr.consts, *jtu.tree_leaves(module))}
    return any(
        isinstance(value, Tracer) and id(value) not in known
        for value in later.jaxpr.consts
    )


def trace(function: Any, *arguments: Any) -> Trace:
    """Traces a function on trees of `jax.ShapeDtypeStruct`s or arrays."""
    with without_leaks():
        jaxpr, result = jax.make_jaxpr(function, return_shape=True)(*arguments)
    return Trace(jaxpr, result)


@final
@dataclasses.dataclass(frozen=True)
class CarryLeaf:
    """One leaf of a carry: its path from `state`, and whether it sits in `Held`."""

    path: str
    leaf: Any
    held: bool


def carry_leaves(state: Any) -> list[CarryLeaf]:
    """Every leaf of a carry, in the order in which JAX flattens it."""
    leaves: list[CarryLeaf] = []
    nodes = jtu.tree_leaves_with_path(
        state, is_leaf=lambda node: isinstance(node, Held)
    )
    for path, node in nodes:
        held = isinstance(node, Held)
        for inner, leaf in jtu.tree_leaves_with_path(node):
            leaves.append(CarryLeaf(f"state{jtu.keystr((*path, *inner))}", leaf, held))
    return leaves


def with_batch(example: Any, batch: int) -> Any:
    """`example` as shapes, with `batch` rows.

    **Arguments:**

    - `example`: a tree of arrays or `jax.ShapeDtypeStruct`s, leaves `[B, ...]`.
    - `batch`: the new `B`.
    """
    return jtu.tree_map(
        lambda leaf: jax.ShapeDtypeStruct((batch, *leaf.shape[1:]), leaf.dtype), example
    )


def expect_batch(example: Any) -> int:
    """The batch size of an example input; `ValueError` where it has none."""
    leaves = jtu.tree_leaves_with_path(example)
    sizes: dict[str, int] = {}
    for path, leaf in leaves:
        name = f"example_input{jtu.keystr(path)}"
        if not hasattr(leaf, "shape") or not hasattr(leaf, "dtype"):
            raise ValueError(
                f"expected {name} to be an array [B, ...], got {type(leaf).__name__}"
            )
        if not leaf.shape:
            raise ValueError(f"expected {name} to be an array [B, ...], got a scalar")
        sizes[name] = leaf.shape[0]
    if len(set(sizes.values())) != 1:
        raise ValueError(
            "expected example_input to hold arrays that share the leading axis B, got "
            + (", ".join(f"{name}: {size}" for name, size in sizes.items()) or "none")
        )
    return next(iter(sizes.values()))


def key_shapes(batch: int) -> jax.ShapeDtypeStruct:
    """One key per environment, as a shape."""
    return jax.ShapeDtypeStruct((batch,), jax.random.key(0).dtype)


def signature(aval: Any) -> str:
    """Shape, type and weakness, for an error message: `float32[5, 3]`."""
    axes = ", ".join(map(str, aval.shape))
    weak = " (weakly typed)" if getattr(aval, "weak_type", False) else ""
    return f"{aval.dtype}[{axes}]{weak}"


def leaf_paths(tree: Any) -> set[str]:
    """The paths of all leaves."""
    return {
        jtu.keystr(path) or "a single leaf"
        for path, _ in jtu.tree_leaves_with_path(tree)
    }
