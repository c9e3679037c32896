"""Containers: modules made of modules."""

from collections.abc import Mapping, Sequence
from typing import Any, cast, final

from .._tree import canonical
from ._errors import CompositionError
from ._routing import Call, Children, Container
from .types import AnyModule, expect_module


@final
class Sequential(Container[Any, Any]):
    """Runs modules one after the other, each on the output of the one before.

    The carry and the extras are tuples with an entry per layer.
    """

    layers: tuple[AnyModule, ...]

    def __init__(self, layers: Any):
        """**Arguments:**

        - `layers`: a list or tuple of modules, first to last; at least one.
        """
        if not isinstance(layers, Sequence):
            raise CompositionError(
                f"Sequential expects a list of modules, got {type(layers).__name__}"
            )
        layers = cast(Sequence[Any], layers)
        if not layers:
            raise ValueError("Sequential needs at least one layer, got none")
        for index, layer in enumerate(layers):
            expect_module(f"Sequential[{index}]", layer)
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
        components: Any = None,
        /,
        **named_components: Any,
    ):
        """**Arguments:**

        - `components`: a mapping of modules by name; or, instead, keyword arguments.
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
    components: Any,
    named_components: dict[str, Any],
) -> dict[str, AnyModule]:
    if components is not None and named_components:
        raise ValueError(f"{kind} takes either one mapping or keyword arguments")
    if components is not None and not isinstance(components, Mapping):
        raise CompositionError(
            f"{kind} expects a mapping of modules, got {type(components).__name__}"
        )
    given = cast(Mapping[str, Any] | None, components)
    chosen = named_components if given is None else given
    if not chosen:
        raise ValueError(f"{kind} needs at least one component, got none")
    for name, module in chosen.items():
        expect_module(f"{kind}.{name}", module)
    return canonical(dict(chosen))
