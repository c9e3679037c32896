"""Containers: modules made of modules."""

from collections.abc import Mapping, Sequence
from typing import Any, cast, final, overload

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from .._expect import as_count
from .._tree import canonical, shape_text
from ._entries import entries_for
from ._errors import CompositionError
from ._routing import Call, Children, Container
from .types import (
    AnyModule,
    expect_module,
    In,
    Out,
    output,
    StatefulModule,
    StatefulModuleOutput,
    StatelessModule,
)


@final
class Sequential(Container[In, Out]):
    """Runs modules one after the other, each on the output of the one before.

    The carry and the extras are tuples with an entry per layer. A type checker knows
    the input and the output of a `tuple` of layers; a `list` forgets which is last.
    """

    layers: tuple[AnyModule, ...]

    @overload
    def __init__(self, layers: tuple[StatefulModule[Any, In, Out]]) -> None: ...

    @overload
    def __init__(
        self,
        layers: tuple[
            StatefulModule[Any, In, Any],
            *tuple[AnyModule, ...],
            StatefulModule[Any, Any, Out],
        ],
    ) -> None: ...

    @overload
    def __init__(self: "Sequential[Any, Any]", layers: Any) -> None: ...

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


class NamedContainer(Container[In, Out]):
    """A container whose children have names and stand side by side.

    An author writes `route`. Children come in the order of their sorted names, inside
    of `jax.jit` and outside of it.
    """

    components: dict[str, AnyModule]

    # A type checker makes up a constructor for every dataclass that does not name one,
    # so the classes below do.
    def __init__(self, components: Any = None, /, **named_components: Any):
        """**Arguments:**

        - `components`: a mapping of modules by name; or, instead, keyword arguments.
        """
        kind = type(self).__name__
        if components is not None and named_components:
            raise ValueError(f"{kind} takes either one mapping or keyword arguments")
        if components is not None and not isinstance(components, Mapping):
            raise CompositionError(
                f"{kind} expects a mapping of modules, got {type(components).__name__}"
            )
        given = cast(Mapping[Any, Any] | None, components)
        chosen = named_components if given is None else given
        if not chosen:
            raise ValueError(f"{kind} needs at least one component, got none")
        for name, module in chosen.items():
            if not isinstance(name, str):
                raise CompositionError(
                    f"{kind} names its components by strings, got {name!r}"
                )
            expect_module(f"{kind}.{name}", module)
        self.components = dict(sorted(chosen.items()))

    @final
    def children(self) -> Children:
        """The components, by name."""
        return self.components

    @final
    def call_each(self, call: Call, x: Any) -> dict[str, Any]:
        """Every component on the entry of `x` that has its name.

        **Raises:**

        `CompositionError` that names an entry that is missing, or for no component.
        """
        parts = entries_for(self.components, x, "component")
        return {name: call(name, parts[name]) for name in self.components}


@final
class Parallel(NamedContainer[Any, dict[str, Any]]):
    """Runs modules side by side on the same input; the output is a `dict` by name."""

    __init__ = NamedContainer.__init__

    def route(self, call: Call, x: Any) -> dict[str, Any]:
        """The same input for every component."""
        return {name: call(name, x) for name in self.components}


@final
class Map(NamedContainer[Any, dict[str, Any]]):
    """Runs each module on the entry of the input with its name; the output is a `dict`.

    The input is a mapping, a named tuple or a dataclass with exactly the names of the
    components; `Filter` drops what is too much. A bank of samplers, one for each part
    of an action, is a `Map`.
    """

    __init__ = NamedContainer.__init__

    def route(self, call: Call, x: Any) -> dict[str, Any]:
        """To every component its own entry."""
        return self.call_each(call, x)


@final
class Concat(NamedContainer[Any, Float[Array, "B features"]]):
    """Runs each module on the entry of the input with its name, and joins the outputs.

    Inputs are those of `Map`. The outputs are joined along their last axis, in the
    order of the sorted names.
    """

    __init__ = NamedContainer.__init__

    def route(self, call: Call, x: Any) -> Float[Array, "... features"]:
        """To every component its own entry, then one array of all features."""
        values = self.call_each(call, x)
        for name, value in values.items():
            shape = getattr(value, "shape", ())
            if len(shape) <= len(call.batch_shape):
                raise CompositionError(
                    f"expected Concat.{name} to return an array [B, features], got "
                    f"{shape_text(value)}"
                )
        rows = {value.shape[:-1] for value in values.values()}
        if len(rows) > 1:
            raise CompositionError(
                "expected components that return arrays which differ in their last "
                f"axis only, got {shape_text(values)}"
            )
        return jnp.concatenate(list(values.values()), axis=-1)


@final
class Merge(NamedContainer[Any, dict[str, Any]]):
    """Runs modules side by side on the same input and merges the dicts they return.

    Where `Parallel` gives a `dict` of dicts, this gives one flat `dict`.
    """

    __init__ = NamedContainer.__init__

    def route(self, call: Call, x: Any) -> dict[str, Any]:
        """The same input for every component; no key may come from two of them."""
        merged: dict[str, Any] = {}
        origins: dict[str, str] = {}
        for name in self.components:
            value = call(name, x)
            if not isinstance(value, Mapping):
                raise CompositionError(
                    f"expected Merge.{name} to return a dict, got "
                    f"{type(value).__name__} {shape_text(value)}"
                )
            for key, part in cast(Mapping[str, Any], value).items():
                if key in merged:
                    raise CompositionError(
                        f"Merge.{origins[key]} and Merge.{name} both return {key!r}; "
                        "rename one of them"
                    )
                merged[key] = part
                origins[key] = name
        return canonical(merged)


@final
class Splitter(StatelessModule[Any, dict[str, Any]]):
    """Cuts the last axis into named slices, in the order in which they are declared.

    What is left over is dropped.

    **Example:**

    ```python
    Splitter(action=2 * action_size, value=1)
    ```
    """

    sizes: tuple[tuple[str, int], ...] = eqx.field(static=True)

    def __init__(self, **sizes: int):
        """**Arguments:**

        - `sizes`: how many features each slice has.

        **Raises:**

        `TypeError` or `ValueError` for a size that is no integer of at least 1.
        """
        if not sizes:
            raise ValueError("Splitter needs at least one slice, got none")
        self.sizes = tuple(
            (name, as_count(size, name=f"Splitter's {name!r}"))
            for name, size in sizes.items()
        )

    def __call__(
        self, state: tuple[()], x: Any, rollout_extras: Any = None
    ) -> StatefulModuleOutput[tuple[()], dict[str, Any]]:
        """Cuts `x`, `[B, ..., features]`."""
        total = sum(size for _, size in self.sizes)
        shape = getattr(x, "shape", ())
        if len(shape) < 2 or shape[-1] < total:
            declared = ", ".join(f"{name}={size}" for name, size in self.sizes)
            raise CompositionError(
                f"expected x [B, {total}] or wider for {declared}, got {shape_text(x)}"
            )
        slices: dict[str, Any] = {}
        start = 0
        for name, size in self.sizes:
            slices[name] = x[..., start : start + size]
            start += size
        return output(canonical(slices), batch=len(x))
