"""The declared types of what a module returns, where a type checker looks into them.

A run-time type checker knows what `StatefulModuleOutput` is, and knows nothing of the
types in its brackets. jaxtyping's arrays are checked because they are classes that
answer `isinstance`; `StatefulModuleOutput[State, Out]` is made such a class here. So a
package that turns on `jaxtyping.install_import_hook` has its modules' outputs and
carries checked with the axes of their arguments, and nobody else pays anything.
"""

import functools as ft
import re
from collections.abc import Mapping
from typing import Any, get_args, get_origin, no_type_check, TypeVar

from beartype.door import is_bearable
from beartype.roar import BeartypeCallHintForwardRefException

from .._tree import shape_text
from ._errors import CompositionError


class _Declared(type):
    """Of a class that stands for `origin[...]`; `fields` are the types in brackets.

    Its methods are never themselves checked: an axis such as `{self.size}` is looked
    up in the checked function that was called last, which must be the module's.
    """

    origin: type
    alias: Any
    fields: dict[str, Any]

    def __getitem__(cls, parameters: Any) -> Any:
        """The same type with its type variables replaced."""
        return declared(cls.alias[parameters], tuple(cls.fields))

    @no_type_check
    def __instancecheck__(cls, instance: Any) -> bool:
        """Whether a value is of the origin, and its fields of their types."""
        return isinstance(instance, cls.origin) and not cls.mismatches(instance)

    @no_type_check
    def __instancecheck_str__(cls, instance: Any) -> str:
        """Called by the type checker to word the failure of a check.

        The error that is raised instead is short, and `located` finds it.
        """
        if not isinstance(instance, cls.origin):
            return f"expected {cls.origin.__name__}, got {type(instance).__name__}"
        name, hint = cls.mismatches(instance)[0]
        value = getattr(instance, name)
        explain = getattr(hint, "__instancecheck_str__", None)
        reason = f": {explain(value)}" if explain else ""
        raise CompositionError(
            f"expected the declared {name}, {type_text(hint)}, got "
            f"{shape_text(value)}{reason}"
        )

    @no_type_check
    def mismatches(cls, instance: Any) -> list[tuple[str, Any]]:
        """The fields whose values are not of their types, each with the type."""
        return [
            (name, hint)
            for name, hint in cls.fields.items()
            if not _fits(getattr(instance, name), hint)
        ]


@no_type_check
def _fits(value: Any, hint: Any) -> bool:
    """Whether a value is of a type; beartype looks at one item of a mapping only."""
    try:
        if not is_bearable(value, hint):
            return False
    except BeartypeCallHintForwardRefException:
        return True
    origin = get_origin(hint)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return all(_fits(item, get_args(hint)[1]) for item in value.values())
    return True


def declared(alias: Any, fields: tuple[str, ...]) -> Any:
    """A class that values are instances of if their fields have the declared types.

    **Arguments:**

    - `alias`: the generic type with its parameters, such as
      `StatefulModuleOutput[tuple[()], Float[Array, "B 3"]]`.
    - `fields`: the fields that the parameters are the types of, in their order.
    """
    return _class_of(alias, tuple(zip(fields, alias.__args__, strict=True)))


@ft.cache
def _class_of(alias: Any, fields: tuple[tuple[str, Any], ...]) -> Any:
    origin = alias.__origin__
    names = ", ".join(type_text(hint) for _, hint in fields)
    # beartype insists on the representation that builtin types have.
    members = {
        "origin": origin,
        "alias": alias,
        "fields": dict(fields),
        "__module__": "builtins",
        "__doc__": origin.__doc__,
    }
    return _Declared(f"{origin.__name__}[{names}]", (), members)


def type_text(hint: Any) -> str:
    """A type as its author wrote it, as far as can be told."""
    if isinstance(hint, TypeVar):
        return hint.__name__
    generic = bool(getattr(hint, "__args__", ()))
    text = hint.__name__ if isinstance(hint, type) and not generic else str(hint)
    return re.sub(r"\b(jaxlib\._jax|jaxtyping|typing)\.", "", text)
