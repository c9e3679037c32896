"""Containers: modules made of modules."""

from collections.abc import Mapping, Sequence
from typing import Any, final

from .._tree import canonical
from ._errors import CompositionError
from ._routing import Call, Children, Container
from .types import AnyModule, StatefulModule


@final
class Sequential(Container[Any, Any]):
    """Runs modules one after the other, each on the output of the one before.

    The carry and the extras are tuples with an entry per layer.
    """

    layers: tuple[AnyModule, ...]

    def __init__(self, layers: Sequence[Any]):
        """**Arguments:**

        - `layers`: the modules, first to last; at least one.
        """
        if not layers:
            raise ValueError("Sequential needs at least one layer, got none")
        for index, layer in enumerate(layers):
            _expect_module(f"Sequential[{index}]", layer)
        self.layers = tuple(layers)

    def __getitem__(self, index: int) -> AnyModule:
        """The layer at `index`."""
        return self.layers[index]

    def __len__(self) -> int:
        """How many layers there are."""
        return len(self.layers)

    def children(self) -> Children:
        """The layers, by position."""
        return self.layers

    def route(self, call: Call, x: Any) -> Any:
        """Through every layer in turn."""
        for index in range(len(self.layers)):
            x = call(index, x)
        return x


@final
class Parallel(Container[Any, dict[str, Any]]):
    """Runs modules side by side on the same input; the output is a `dict` by name."""

    components: dict[str, AnyModule]

    def __init__(
        self,
        components: Mapping[str, Any] | None = None,
        /,
        **named_components: Any,
    ):
        """**Arguments:**

        - `components`: modules by name; or, instead, keyword arguments.
        """
        self.components = _components("Parallel", components, named_components)

    def children(self) -> Children:
        """The components, by name."""
        return self.components

    def route(self, call: Call, x: Any) -> dict[str, Any]:
        """The same input for every component."""
        return {name: call(name, x) for name in self.components}


def _components(
    kind: str,
    components: Mapping[str, Any] | None,
    named_components: Mapping[str, Any],
) -> dict[str, AnyModule]:
    if components is not None and named_components:
        raise ValueError(f"{kind} takes either one mapping or keyword arguments")
    chosen = named_components if components is None else components
    if not chosen:
        raise ValueError(f"{kind} needs at least one component, got none")
    for name, module in chosen.items():
        _expect_module(f"{kind}.{name}", module)
    return canonical(dict(chosen))


def _expect_module(place: str, module: Any) -> None:
    """Refuses what is not a module, with advice that a type checker would not give.

    Constructors therefore take `Any` for modules.
    """
    if isinstance(module, type) or not isinstance(module, StatefulModule):
        given = module.__name__ if isinstance(module, type) else type(module).__name__
        raise CompositionError(
            f"expected a module, got {given!r}; wrap a function on [B, ...] arrays in "
            "Stateless(fn)",
            (place,),
            given,
        )
