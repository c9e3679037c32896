"""One routing of state, extras, metrics, regularisation and statistics to children.

A container is what it does with inputs and outputs and nothing else: it names its
children, and routes values through them by calling `call(name, x)`.
"""

import abc
import functools as ft
from collections.abc import Callable, Iterable, Mapping
from typing import Any, cast, final, TypeAlias, TypeVar

import equinox as eqx
import jax.numpy as jnp
import jax.tree_util as jtu
from jaxtyping import Array, Bool

from .._custom_types import Keys
from .._keys import derive
from .._tree import canonical, shape_text
from ._errors import CompositionError, located
from .types import (
    AnyModule,
    expect_module,
    expect_output,
    In,
    Out,
    StatefulModuleOutput,
    UnrolledModule,
)
from .unroll import unroll


Name: TypeAlias = str | int
Children: TypeAlias = tuple[AnyModule, ...] | dict[str, AnyModule]
RunChild: TypeAlias = Callable[
    [AnyModule, Any, Any, Any], StatefulModuleOutput[Any, Any]
]
Self = TypeVar("Self", bound="Container[Any, Any]")


def named(children: Children) -> dict[Name, AnyModule]:
    """Children by name: their position in a tuple, or their key in a mapping."""
    pairs = children.items() if isinstance(children, dict) else enumerate(children)
    return {name: child for name, child in pairs}


def shaped_like(children: Children, values: Mapping[Name, Any]) -> Any:
    """One value per child, in a tuple or a mapping as the children are."""
    if isinstance(children, dict):
        return {name: values[name] for name in children}
    return tuple(values[index] for index in range(len(children)))


@final
class Call:
    """Runs a container's children, for one step or over time, and keeps what they say.

    `call(name, x)` runs the child `name` on `x` and gives its output. `batch_shape`
    is `(B,)` in a step and `(T, B)` in an unroll.
    """

    def __init__(
        self,
        container: "Container[Any, Any]",
        run: RunChild,
        state: Any,
        rollout_extras: Any,
        batch_shape: tuple[int, ...],
    ):
        self.batch_shape = batch_shape
        self._container = container
        self._children = named(container.children())
        self._run = run
        self._state = state
        self._extras = rollout_extras
        self._outputs: dict[Name, StatefulModuleOutput[Any, Any]] = {}

    def __call__(self, name: Name, x: Any) -> Any:
        """The output of the child `name` for the input `x`."""
        if name in self._outputs:
            raise CompositionError(
                f"{type(self._container).__name__} runs its child {name!r} twice in "
                "one step; each child has one carry and runs once"
            )
        if name not in self._children:
            raise CompositionError(
                f"{type(self._container).__name__} calls a child {name!r}; its "
                f"children are {', '.join(map(repr, self._children))}"
            )
        child = self._children[name]
        extras = None if self._extras is None else self._extras[name]
        with located(place(self._container, name), child):
            result = self._run(child, self._state[name], x, extras)
            expect_output(result, "__call__")
            expect_rows(result.output, self.batch_shape)
        self._outputs[name] = result
        return result.output

    def gather(self, value: Any) -> StatefulModuleOutput[Any, Any]:
        """The container's output, once `value` has been routed through the children."""
        left_out = self._children.keys() - self._outputs.keys()
        if left_out:
            raise CompositionError(
                f"{type(self._container).__name__} did not run its children "
                f"{sorted(map(str, left_out))}; every child must run in every step"
            )
        outputs = {name: self._outputs[name] for name in self._children}
        children = self._container.children()
        return StatefulModuleOutput(
            shaped_like(children, {n: out.next_state for n, out in outputs.items()}),
            value,
            ft.reduce(jnp.add, (out.regularization_loss for out in outputs.values())),
            {str(n): out.metrics for n, out in outputs.items() if out.metrics},
            self._extras
            if self._extras is not None
            else shaped_like(
                children, {n: out.rollout_extras for n, out in outputs.items()}
            ),
        )


class Container(UnrolledModule[Any, In, Out]):
    """A module made of modules.

    An author writes `children` and `route`; carry, extras, metrics, regularisation
    and statistics of the children find their way by themselves.

    **Example:**

    ```python
    class Residual(Container[Features, Features]):
        inner: StatefulModule[Any, Features, Features]

        def children(self):
            return {"inner": self.inner}

        def route(self, call, x):
            return x + call("inner", x)
    ```
    """

    def __check_init__(self):
        """Refuses children that are not modules, or none."""
        children: Any = self.children()
        if not children:
            raise ValueError(
                f"{type(self).__name__} needs at least one child, got none"
            )
        pairs = children.items() if isinstance(children, dict) else enumerate(children)
        for name, child in cast(Iterable[tuple[Name, Any]], pairs):
            expect_module(place(self, name), child)

    @abc.abstractmethod
    def children(self) -> Children:
        """The children, at least one: fields of this module, in a tuple or by name."""

    @abc.abstractmethod
    def route(self, call: Call, x: In) -> Out:
        """Passes `x` through every child once.

        **Arguments:**

        - `call`: `call(name, x)` runs the child `name`.
        - `x`: the input; leaves `[B, ...]` in a step and `[T, B, ...]` in an unroll,
          so axes are counted from the end.
        """

    @final
    def initialize_state(self, keys: Keys) -> Any:
        """Every child's carry, each born from a key of its own."""
        return shaped_like(
            self.children(),
            self._of_each(
                lambda name, child: child.initialize_state(
                    derive(keys, f"child {name}")
                )
            ),
        )

    @final
    def reset_state(self, state: Any) -> Any:
        """Every child's carry, reset."""
        return shaped_like(
            self.children(),
            self._of_each(lambda name, child: child.reset_state(state[name])),
        )

    @final
    def __call__(
        self, state: Any, x: In, rollout_extras: Any = None
    ) -> StatefulModuleOutput[Any, Out]:
        """One step through the children."""
        return _routed(
            self, Call(self, _step, state, rollout_extras, batch_shape(x)), x
        )

    @final
    def unroll(
        self,
        state: Any,
        xs: In,
        is_first: Bool[Array, "T B"],
        rollout_extras: Any = None,
    ) -> StatefulModuleOutput[Any, Out]:
        """All of time through one child, then through the next."""

        def run(
            child: AnyModule, child_state: Any, child_xs: Any, extras: Any
        ) -> StatefulModuleOutput[Any, Any]:
            return unroll(child, child_state, child_xs, is_first, extras)

        return _routed(self, Call(self, run, state, rollout_extras, is_first.shape), xs)

    @final
    def update_statistics(self: Self, rollout_extras: Any) -> Self:
        """The container with every child's statistics brought up to date."""
        children = named(self.children())
        updated = self._of_each(
            lambda name, child: child.update_statistics(rollout_extras[name])
        )
        changed = [name for name in children if updated[name] is not children[name]]
        if not changed:
            return self
        return eqx.tree_at(
            lambda container: [named(container.children())[name] for name in changed],
            self,
            [updated[name] for name in changed],
        )

    def _of_each(self, function: Callable[[Name, AnyModule], Any]) -> dict[Name, Any]:
        results: dict[Name, Any] = {}
        for name, child in named(self.children()).items():
            with located(place(self, name), child):
                results[name] = function(name, child)
        return results


def _routed(container: Container[Any, Any], call: Call, x: Any) -> Any:
    """What a container's `route` makes of an input."""
    try:
        value = container.route(call, x)
    except CompositionError:
        raise
    except Exception as error:
        if getattr(error, "__notes__", ()):  # of a child, which is named already
            raise
        axes = "[B, ...]" if len(call.batch_shape) == 1 else "[T, B, ...]"
        error.add_note(
            f"in {type(container).__name__}.route, which sees {axes} here: it counts "
            "axes from the end, and runs children by call(name, x)"
        )
        raise
    if isinstance(value, StatefulModuleOutput):
        raise CompositionError(
            f"expected {type(container).__name__}.route to return a value, got "
            "output(...); what children say is gathered by itself"
        )
    return call.gather(value)


def place(container: Container[Any, Any], name: Name) -> str:
    """How an error names a child's place: `Sequential[2]`, `PPOAdapter.action`."""
    kind = type(container).__name__
    return f"{kind}[{name}]" if isinstance(name, int) else f"{kind}.{name}"


def batch_shape(x: Any) -> tuple[int]:
    """`(B,)` for an input of one step, leaves `[B, ...]`.

    **Raises:**

    `CompositionError` for an input that holds no such array.
    """
    for leaf in jtu.tree_leaves(canonical(x)):
        if getattr(leaf, "shape", ()):
            return leaf.shape[:1]
    raise CompositionError(f"expected x to hold arrays [B, ...], got {shape_text(x)}")


def expect_rows(value: Any, batch_shape: tuple[int, ...]) -> None:
    """Raises `CompositionError` unless an output has a row for each environment."""
    for path, leaf in jtu.tree_leaves_with_path(value):
        shape = getattr(leaf, "shape", None)
        if shape is None or shape[: len(batch_shape)] != batch_shape:
            axes = "B" if len(batch_shape) == 1 else "T, B"
            sizes = ", ".join(map(str, batch_shape))
            came = type(leaf).__name__ if shape is None else shape_text(leaf)
            raise CompositionError(
                f"expected output{jtu.keystr(path)} [{axes}, ...] with [{axes}] = "
                f"[{sizes}], got {came}"
            )


def _step(child: AnyModule, state: Any, x: Any, rollout_extras: Any) -> Any:
    return child(state, x, rollout_extras)
