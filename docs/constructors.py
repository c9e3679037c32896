"""Shows in the API reference how classes are made.

Equinox modules and named tuples take their fields; no source text says so. Where there
is a constructor its text follows that of its class, which has said what it makes.
"""

import dataclasses
import importlib
import inspect
from typing import Any

import griffe


_KINDS = {kind.name: kind for kind in griffe.ParameterKind}


class Constructors(griffe.Extension):
    """Gives every class an `__init__` with the parameters that it really takes."""

    def on_class(self, *, cls: griffe.Class, **_: Any) -> None:
        """Called once for every class, after its members are known."""
        written = cls.members.get("__init__")
        if isinstance(written, griffe.Function):
            _drop_summary(written)
            return
        made = _imported(cls)
        if not _is_generated(made):
            return
        parameters = inspect.signature(made).parameters.values()
        described = [_described(made, cls, parameter) for parameter in parameters]
        constructor = griffe.Function(
            "__init__", parameters=griffe.Parameters(*described)
        )
        if written is not None:  # taken over from another class, with its text
            text = inspect.getdoc(made.__init__) or ""
            constructor.docstring = griffe.Docstring(text)
        cls.set_member("__init__", constructor)


def _drop_summary(constructor: griffe.Object | griffe.Alias) -> None:
    """Leaves of a constructor's text what follows its first sentence, if that is one.

    A text may also begin with the arguments.
    """
    text = constructor.docstring
    if text is not None and not text.value.startswith("**"):
        _, _, text.value = text.value.partition("\n\n")


def _imported(cls: griffe.Class) -> Any:
    """The class itself; `None` where it needs an extra that is not installed."""
    try:
        return getattr(importlib.import_module(cls.module.path), cls.name, None)
    except ImportError:
        return None


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
    fields = dataclasses.fields(made) if dataclasses.is_dataclass(made) else ()
    field = {one.name: one for one in fields}.get(parameter.name)
    if field is not None and field.default_factory is not dataclasses.MISSING:
        return f"{getattr(field.default_factory, '__name__', 'made')}()"
    return repr(parameter.default)
