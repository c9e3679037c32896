"""One routing of state, extras, metrics, regularisation and statistics to children.

A parent names its children, and runs them by calling `call(name, x)`. A container is
a parent that is what it does with inputs and outputs and nothing else; other parents
have a carry of their own, or a way through time of their own.
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
from .._keys import derive, expect_keys
from .._tree import canonical, shape_text
from ._errors import CompositionError, located
from ._wrapper import unwrapped
from .types import (
    ACTIVATION_KEY,
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
    [Name, AnyModule, Any, Any, Any], StatefulModuleOutput[Any, Any]
]
"""Runs a child: its name, itself, its carry, its input, its extras."""
Self = TypeVar("Self", bound="Parent[Any, Any]")


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
    """Runs a parent's children, for one step or over time, and keeps what they say.

    `call(name, x)` runs the child `name` on `x` and gives its output. `batch_shape`
    is `(B,)` in a step and `(T, B)` in an unroll. `carries` and `rollout_extras` are
    those of the children, and `outputs` what those that have run have returned.
    """

    def __init__(
        self,
        parent: "Parent[Any, Any]",
        run: RunChild,
        carries: Any,
        rollout_extras: Any,
        batch_shape: tuple[int, ...],
    ):
        self.batch_shape = batch_shape
        self.carries = carries
        self.rollout_extras = rollout_extras
        self.outputs: dict[Name, StatefulModuleOutput[Any, Any]] = {}
        self._parent = parent
        self._children = named(parent.children())
        self._run = run

    def __call__(self, name: Name, x: Any) -> Any:
        """The output of the child `name` for the input `x`."""
        if name in self.outputs:
            raise CompositionError(
                f"{type(self._parent).__name__} runs its child {name!r} twice in "
                "one step; each child has one carry and runs once"
            )
        if name not in self._children:
            raise CompositionError(
                f"{type(self._parent).__name__} calls a child {name!r}; its "
                f"children are {', '.join(map(repr, self._children))}"
            )
        child = self._children[name]
        extras = None if self.rollout_extras is None else self.rollout_extras[name]
        with located(place(self._parent, name), unwrapped(child)[1]):
            result = self._run(name, child, self.carries[name], x, extras)
            expect_output(result, "__call__")
            expect_rows(result.output, self.batch_shape)
        self.outputs[name] = result
        return result.output

    def inside(
        self,
        run: RunChild,
        carries: Any,
        rollout_extras: Any,
        batch_shape: tuple[int, ...],
    ) -> "Call":
        """A call to some of the same children, for a part of the time.

        **Arguments:**

        - `run`: runs a child.
        - `carries`, `rollout_extras`: by name, of the children that will run.
        - `batch_shape`: of the part.
        """
        return Call(self._parent, run, carries, rollout_extras, batch_shape)

    def gather(self, value: Any) -> StatefulModuleOutput[Any, Any]:
        """The parent's output, once `value` has been routed through the children.

        Its `next_state` holds the children's carries.
        """
        left_out = self._children.keys() - self.outputs.keys()
        if left_out:
            raise CompositionError(
                f"{type(self._parent).__name__} did not run its children "
                f"{sorted(map(str, left_out))}; every child must run in every step"
            )
        outputs = {name: self.outputs[name] for name in self._children}
        children = self._parent.children()
        return StatefulModuleOutput(
            shaped_like(children, {n: out.next_state for n, out in outputs.items()}),
            value,
            ft.reduce(jnp.add, (out.regularization_loss for out in outputs.values())),
            {str(n): out.metrics for n, out in outputs.items() if out.metrics},
            self.rollout_extras
            if self.rollout_extras is not None
            else shaped_like(
                children, {n: out.rollout_extras for n, out in outputs.items()}
            ),
        )


class Parent(UnrolledModule[Any, In, Out]):
    """A module that holds modules, and runs each of them once in a step.

    An author who needs no more than that derives from `Container`.
    """

    def __check_init__(self):
        """Refuses children that are not modules, or none, and one impossible name."""
        children: Any = self.children()
        if not children:
            raise ValueError(
                f"{type(self).__name__} needs at least one child, got none"
            )
        pairs = children.items() if isinstance(children, dict) else enumerate(children)
        for name, child in cast(Iterable[tuple[Name, Any]], pairs):
            if name == ACTIVATION_KEY:
                raise ValueError(
                    f"{type(self).__name__} cannot have a child called {name!r}: there "
                    "stand recordings among the metrics"
                )
            expect_module(place(self, name), child)

    @abc.abstractmethod
    def children(self) -> Children:
        """The children, at least one: fields of this module, in a tuple or by name."""

    @abc.abstractmethod
    def carries_of_children(self, state: Any) -> Any:
        """The children's part in a carry of this module, shaped as `children` is."""

    @abc.abstractmethod
    def run_step(
        self, run: RunChild, state: Any, x: In, rollout_extras: Any = None
    ) -> StatefulModuleOutput[Any, Out]:
        """One step, in which every child is run by `run`."""

    @final
    def __call__(
        self, state: Any, x: In, rollout_extras: Any = None
    ) -> StatefulModuleOutput[Any, Out]:
        """One step through the children."""
        return self.run_step(step_child, state, x, rollout_extras)

    @final
    def update_statistics(self: Self, rollout_extras: Any) -> Self:
        """The module with every child's statistics brought up to date."""
        return self.with_children(
            self._of_each(
                lambda name, child: child.update_statistics(rollout_extras[name])
            )
        )

    @final
    def with_children(self: Self, others: Mapping[Name, AnyModule]) -> Self:
        """The module with other children.

        **Arguments:**

        - `others`: by name; children that are not among them stay.
        """
        children = named(self.children())
        changed = [name for name in others if others[name] is not children[name]]
        if not changed:
            return self
        return eqx.tree_at(
            lambda parent: [named(parent.children())[name] for name in changed],
            self,
            [others[name] for name in changed],
        )

    def _born(self, keys: Keys) -> Any:
        """Every child's carry, each from a key of its own, shaped as the children."""
        expect_keys(keys)
        return shaped_like(
            self.children(),
            self._of_each(
                lambda name, child: child.initialize_state(
                    derive(keys, f"child {name}")
                )
            ),
        )

    def _reborn(self, carries: Any) -> Any:
        """Every child's carry, reset."""
        return shaped_like(
            self.children(),
            self._of_each(lambda name, child: child.reset_state(carries[name])),
        )

    def _of_each(self, function: Callable[[Name, AnyModule], Any]) -> dict[Name, Any]:
        """What a function gives for every child; its errors name the place."""
        results: dict[Name, Any] = {}
        for name, child in named(self.children()).items():
            with located(place(self, name), unwrapped(child)[1]):
                results[name] = function(name, child)
        return results


class Container(Parent[In, Out]):
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
        return self._born(keys)

    @final
    def reset_state(self, state: Any) -> Any:
        """Every child's carry, reset."""
        return self._reborn(state)

    @final
    def carries_of_children(self, state: Any) -> Any:
        """The carry itself: a container has none of its own."""
        return state

    @final
    def run_step(
        self, run: RunChild, state: Any, x: In, rollout_extras: Any = None
    ) -> StatefulModuleOutput[Any, Out]:
        """One step along the route."""
        return _routed(self, Call(self, run, state, rollout_extras, batch_shape(x)), x)

    @final
    def unroll(
        self,
        state: Any,
        xs: In,
        is_first: Bool[Array, "T B"],
        rollout_extras: Any = None,
    ) -> StatefulModuleOutput[Any, Out]:
        """All of time through one child, then through the next."""
        run = unrolled_children(is_first)
        return _routed(self, Call(self, run, state, rollout_extras, is_first.shape), xs)


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


def step_child(
    name: Name, child: AnyModule, carry: Any, x: Any, rollout_extras: Any
) -> Any:
    """Runs a child for one step; whether it gives an output, `Call` looks."""
    return child(carry, x, rollout_extras)


def unrolled_children(is_first: Bool[Array, "T B"]) -> RunChild:
    """Runs a child over time.

    **Arguments:**

    - `is_first`: where a step begins an episode.
    """

    def run(
        name: Name, child: AnyModule, carry: Any, xs: Any, rollout_extras: Any
    ) -> StatefulModuleOutput[Any, Any]:
        return unroll(child, carry, xs, is_first, rollout_extras)

    return run


def place(parent: Parent[Any, Any], name: Name) -> str:
    """How an error names a child's place: `Sequential[2]`, `PPOAdapter.action`."""
    kind = type(parent).__name__
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
