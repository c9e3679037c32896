"""Finds the child to blame when a whole network breaks a law."""

from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.tree_util as jtu
from jax.core import Tracer

from ..networks._routing import Name, named, Parent, place
from ..networks.types import AnyModule
from ._traces import key_shapes
from .violation import LawViolation


def blame(
    violation: LawViolation,
    module: AnyModule,
    inputs_of_children: Callable[[Parent[Any, Any]], dict[Name, Any]],
    check: Callable[[AnyModule, Any], None],
) -> LawViolation:
    """The violation of the innermost module that breaks the same law by itself.

    **Arguments:**

    - `violation`: what was found on `module`.
    - `module`: the module that was checked.
    - `inputs_of_children`: gives, for a parent, what each of its children receives.
    - `check`: called with a child and its input; raises `LawViolation`.
    """
    if isinstance(module, Parent):
        children = named(module.children())
        for name, x in inputs_of_children(module).items():
            child = children[name]
            try:
                check(child, x)
            except LawViolation as inner:
                if inner.law == violation.law:
                    return inner.at((place(module, name),), type(child).__name__)
            except Exception:
                # A child that cannot run by itself is not shown to be the culprit.
                continue
    return violation.at((), type(module).__name__)


def record_inputs(
    parent: Parent[Any, Any], state: Any, x: Any, received: dict[Name, Any]
) -> None:
    """Notes what each child of a parent receives for the input `x`.

    A child that fails ends the recording; what was received until then is noted.

    **Arguments:**

    - `parent`: whose children run, for one step.
    - `state`: its carry, leaves `[B, ...]`.
    - `x`: its input, leaves `[B, ...]`.
    - `received`: filled with a child's input under the child's name: arrays, or
      `jax.ShapeDtypeStruct`s where this function is being traced.
    """

    def run(name: Name, child: AnyModule, carry: Any, child_x: Any, extras: Any) -> Any:
        received[name] = jtu.tree_map(_without_tracers, child_x)
        return child(carry, child_x, extras)

    try:
        parent.run_step(run, state, x)
    except Exception:
        return


def innermost(module: AnyModule, x: Any, batch: int) -> Iterator[tuple[AnyModule, Any]]:
    """Every module inside that is no parent, and the shapes of its input.

    **Arguments:**

    - `module`: the module, given itself if it is no parent.
    - `x`: its input, any tree of arrays or `jax.ShapeDtypeStruct`s `[batch, ...]`.
    - `batch`: the batch size.
    """
    if not isinstance(module, Parent):
        yield module, x
        return
    received: dict[Name, Any] = {}
    state = jax.eval_shape(module.initialize_state, key_shapes(batch))
    jax.eval_shape(lambda state, x: record_inputs(module, state, x, received), state, x)
    children = named(module.children())
    for name, child_x in received.items():
        yield from innermost(children[name], child_x, batch)


def _without_tracers(leaf: Any) -> Any:
    if isinstance(leaf, Tracer):
        return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype)
    return leaf
