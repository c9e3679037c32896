"""Shows in the API reference how classes are made whose constructor is generated.

Equinox modules and named tuples take their fields; no source text says so.
"""

import dataclasses
import importlib
import inspect
from typing import Any

import griffe


_KINDS = {kind.name: kind for kind in griffe.ParameterKind}


class Constructors(griffe.Extension):
    """Gives such classes an `__init__` with the parameters that they really take."""

    def on_class(self, *, cls: griffe.Class, **_: Any) -> None:
        """Called once for every class, after its members are known."""
        made = getattr(importlib.import_module(cls.module.path), cls.name, None)
        if not _is_generated(made) or "__init__" in cls.members:
            return
        parameters = inspect.signature(made).parameters.values()
        described = [_described(made, cls, parameter) for parameter in parameters]
        constructor = griffe.Function(
            "__init__", parameters=griffe.Parameters(*described)
        )
        cls.set_member("__init__", constructor)


def _is_generated(made: Any) -> bool:
    """Whether a class can be made and lists its fields rather than a constructor."""
    if not isinstance(made, type) or inspect.isabstract(made):
        return False
    if issubclass(made, tuple):
        return hasattr(made, "_fields")
    return dataclasses.is_dataclass(made)


def _described(
    made: type[Any], cls: griffe.Class, parameter: inspect.Parameter
) -> griffe.Parameter:
    member = cls.members.get(parameter.name)
    return griffe.Parameter(
        parameter.name,
        annotation=getattr(member, "annotation", None),
        kind=_KINDS[parameter.kind.name.lower()],
        default=_default(made, parameter),
    )


def _default(made: type[Any], parameter: inspect.Parameter) -> str | None:
    if parameter.default is parameter.empty:
        return None
    if not dataclasses.is_dataclass(made):
        return repr(parameter.default)
    field = {one.name: one for one in dataclasses.fields(made)}[parameter.name]
    if field.default_factory is not dataclasses.MISSING:
        return f"{getattr(field.default_factory, '__name__', 'made')}()"
    return repr(parameter.default)
