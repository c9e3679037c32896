"""What can be told from how a module is declared, before anything is traced."""

import dataclasses
from collections.abc import Iterator
from typing import Any

import equinox as eqx
import jax
import jax.tree_util as jtu

from .._tree import is_key
from ..networks._routing import named, Parent
from ..networks.types import AnyModule, StatefulModule, StatelessModule
from ._traces import key_shapes
from .violation import LawViolation


def declaration_violations(module: AnyModule) -> Iterator[LawViolation]:
    """Of the module itself and of everything inside it.

    **Arguments:**

    - `module`: the module.
    """
    yield from _keys_in(module)
    for part in _modules_in(module):
        yield from _static_inference(part)
        if isinstance(part, StatefulModule):
            yield from _overridden(part)
        if isinstance(part, StatelessModule):
            yield from _carry_of_stateless(part)
        if isinstance(part, Parent):
            yield from _homeless_children(part)


def _keys_in(module: AnyModule) -> Iterator[LawViolation]:
    for path, leaf in jtu.tree_leaves_with_path(module):
        if is_key(leaf):
            yield LawViolation(
                "provenance",
                "the module holds a random key",
                leaf=jtu.keystr(path),
                cause="a module is the same in the rollout and in the replay, and for "
                "every environment, so a key in it gives numbers that do not belong to "
                "any of them. Keys live in the carry, one per environment: derive from "
                "StochasticModule, or start a chain in initialize_state(keys)",
            )


def _static_inference(part: eqx.Module) -> Iterator[LawViolation]:
    for field in dataclasses.fields(part):
        if field.name == "inference" and field.metadata.get("static", False):
            yield LawViolation(
                "inference",
                f"the field inference of {type(part).__name__} is static, so "
                "equinox.nn.inference_mode cannot set it",
                cause="declare `inference: bool = False`, not static",
            )


def _overridden(part: AnyModule) -> Iterator[LawViolation]:
    """A method that is final follows from others, which unroll uses by themselves."""
    for number, kind in enumerate(type(part).__mro__):
        for base in type(part).__mro__[number + 1 :]:
            for name in vars(kind).keys() & vars(base).keys():
                if getattr(vars(base)[name], "__final__", False):
                    yield LawViolation(
                        "structure",
                        f"{kind.__name__} overrides {base.__name__}.{name}, which is "
                        "final",
                        cause="what the base class does in this method it does by the "
                        "methods that are left to you: write those, or derive from "
                        "StatefulModule and write all of them",
                    )


def _carry_of_stateless(part: AnyModule) -> Iterator[LawViolation]:
    if type(part).initialize_state is StatelessModule.initialize_state:
        return
    if jtu.tree_leaves(jax.eval_shape(part.initialize_state, key_shapes(1))):
        yield LawViolation(
            "structure",
            f"{type(part).__name__} is a StatelessModule, and its initialize_state "
            "gives a carry",
            cause="a StatelessModule has no memory: its unroll is one call on all "
            "steps at once. Derive from StatefulModule, and write reset_state too",
        )


def _homeless_children(parent: Parent[Any, Any]) -> Iterator[LawViolation]:
    fields = {id(part) for part in _modules_in(parent)}
    for name, child in named(parent.children()).items():
        if id(child) not in fields:
            yield LawViolation(
                "structure",
                f"{type(parent).__name__}.children() gives a child {name!r} "
                f"({type(child).__name__}) that the parent does not hold",
                cause="children() makes the child anew or takes it from elsewhere, so "
                "its parameters do not train. The modules in children() are fields: "
                "make them in __init__ and return them as they are",
            )


def _modules_in(module: eqx.Module) -> list[eqx.Module]:
    """Every Equinox module in a module's tree, the module itself first."""
    found: list[eqx.Module] = []

    def note(node: Any) -> bool:
        if isinstance(node, eqx.Module):
            found.append(node)
        return False

    jtu.tree_leaves(module, is_leaf=note)
    return found
