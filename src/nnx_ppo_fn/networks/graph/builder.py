"""Describes a graph of populations, piece by piece."""

from collections.abc import Callable, Sequence
from graphlib import CycleError
from typing import Any, final, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array

from ..._expect import as_count
from ..._keys import derive, expect_key
from ..._suggest import did_you_mean
from ..._tree import shape_text
from .._errors import CompositionError, located
from ..constrained import ConstrainedDense, Numbers
from ..containers import Sequential
from ..feedforward import Dense, Stateless
from ..types import AnyModule, StatefulModule
from .connection import Connection
from .graph import PopulationGraph
from .population import Population
from .schedule import Edge, run_order


Function = Callable[[Array], Array]
Self = TypeVar("Self", bound="PopulationGraphBuilder")


def identity(x: Array) -> Array:
    """The activation of a population that was given none."""
    return x


@final
class PopulationGraphBuilder:
    """Collects populations and connections, and makes a `PopulationGraph` of them.

    Every method but `finalize` returns the builder. What does not fit is refused at
    once, in the line in which it stands.

    The initial weights of a connection depend on `key` and on the names of its two
    populations alone: other connections can come and go. Two connections between the
    same populations count as a first and a second.

    **Example:**

    ```python
    graph = (
        PopulationGraphBuilder(key=jax.random.key(0))
        .add_input("V1", 32, input_from="image", activation=jnp.tanh)
        .add_population("M1", 16, activation=[jnp.tanh, GaussianNoise(0.1)])
        .add_output("arm", 4)
        .connect("V1", "M1", delay=2, reciprocal=True)
        .connect("M1", "arm")
        .finalize()
    )
    ```
    """

    def __init__(self, *, key: Any):
        """**Arguments:**

        - `key`: one typed key, for the initial weights of all connections.
        """
        expect_key(key)
        self._key = key
        self._populations: dict[str, Population] = {}
        self._signs: dict[str, Numbers] = {}
        self._connections: dict[str, Connection] = {}

    def add_population(
        self: Self,
        name: str,
        size: int,
        *,
        activation: Any = None,
        sign: Any = None,
    ) -> Self:
        """Adds a population that is neither input nor output.

        **Arguments:**

        - `name`: any that has no `->` in it.
        - `size`: how many neurons.
        - `activation`: makes the activity of the sum of all that comes in: a function
          on `[B, size]`, a module, or a list of those, one after the other; `None` for
          the sum itself. A `GaussianNoise` makes noisy neurons.
        - `sign`: Dale's law: 1 for neurons that excite whatever they are connected
          with, -1 for those that inhibit; one number or one per neuron. The
          connections that start here are then each a `ConstrainedDense`. Activities
          should not be negative.

        **Raises:**

        `ValueError` for a name that is taken or not possible, a size below 1, and signs
        other than 1 and -1; `CompositionError` for an activation that is no function
        and no module, or that does not give `[B, size]`.
        """
        return self._add(name, size, activation, sign)

    def add_input(
        self: Self,
        name: str,
        size: int,
        *,
        input_from: str,
        activation: Any = None,
        sign: Any = None,
    ) -> Self:
        """Adds a population that also receives an entry of the observation.

        **Arguments:**

        - `input_from`: which entry, `[B, size]`; several populations may share one.
        - the rest: as in `add_population`.
        """
        return self._add(name, size, activation, sign, input_from=input_from)

    def add_output(
        self: Self,
        name: str,
        size: int,
        *,
        output_to: str | None = None,
        activation: Any = None,
        sign: Any = None,
    ) -> Self:
        """Adds a population whose activity is an entry of the graph's output.

        **Arguments:**

        - `output_to`: which entry; that of the population's own name by default.
        - the rest: as in `add_population`.
        """
        entry = name if output_to is None else output_to
        for other in self._populations.values():
            if other.output_to == entry:
                raise ValueError(
                    f"{name!r} and {other.name!r} are both the output {entry!r}; "
                    "give one of them another output_to"
                )
        return self._add(name, size, activation, sign, output_to=entry)

    def connect(
        self: Self,
        src: str,
        dst: str,
        *,
        transform: Any = None,
        delay: int = 0,
        reciprocal: bool = False,
        mask: Any = None,
    ) -> Self:
        """Adds a connection, which is called `src->dst`.

        A second one between the same populations is called `src->dst (2)`.

        **Arguments:**

        - `src`, `dst`: names of populations that have been added; one and the same for
          a connection with itself, which needs a delay.
        - `transform`: what becomes of the activity on the way: a module from
          `[B, src.size]` to `[B, dst.size]`, a function, or a list of those. By default
          a linear `Dense`, or a `ConstrainedDense` where `src` has a sign or there is a
          mask.
        - `delay`: how many steps the activity takes to arrive; 0 for the same step.
        - `reciprocal`: whether to add the connection from `dst` to `src` as well, with
          the same delay and weights of its own.
        - `mask`: which weights there are, `[src.size, dst.size]`, as booleans or as 0
          and 1.

        **Raises:**

        `ValueError` for names that are not there, a delay below 0, and arguments that
        exclude each other; `CompositionError` for a transform that does not fit.
        """
        source, target = self._known(src), self._known(dst)
        steps = as_count(delay, name="delay", least=0)
        if reciprocal and (transform is not None or mask is not None):
            given = "transform" if transform is not None else "mask"
            raise ValueError(
                f"a {given} is for one direction; leave out reciprocal=True and "
                f"connect {dst!r} with {src!r} in a second call"
            )
        if transform is not None and (mask is not None or src in self._signs):
            reason = "mask" if mask is not None else f"sign of {src!r}"
            made = _as_module(transform)
            if mask is not None or not isinstance(made, ConstrainedDense):
                raise ValueError(
                    f"the {reason} decides on weights, and the transform has weights "
                    "of its own; leave out the transform, or give a ConstrainedDense "
                    "with its sign and mask"
                )
        name = self._new_name(src, dst)
        module = (
            self._default_transform(name, source, target, mask)
            if transform is None
            else _fitting(name, transform, source.size, target.size)
        )
        self._connections[name] = Connection(src, dst, module, steps)
        if reciprocal:
            return self.connect(dst, src, delay=delay)
        return self

    def finalize(self) -> PopulationGraph:
        """The graph of all that has been added.

        **Raises:**

        `ValueError` that names the populations of a cycle without delay, or says what
        is missing: an input, an output, or a connection that leads to an output.
        """
        populations = self._populations.values()
        if not any(one.input_from is not None for one in populations):
            raise ValueError("the graph has no input; add one with add_input")
        if not any(one.output_to is not None for one in populations):
            raise ValueError("the graph has no output; add one with add_output")
        targets = {one.dst for one in self._connections.values()}
        for one in populations:
            if one.output_to is not None and one.name not in targets:
                raise ValueError(f"nothing is connected with the output {one.name!r}")
        immediate = [
            Edge(one.src, one.dst, 0)
            for one in self._connections.values()
            if one.delay == 0
        ]
        try:
            run_order(self._populations, immediate)
        except CycleError as error:
            cycle = " -> ".join(map(repr, error.args[1]))
            raise ValueError(
                f"a cycle without delay: {cycle}; give one of these connections a "
                "delay of at least 1"
            ) from None
        return PopulationGraph(
            dict(sorted(self._populations.items())),
            dict(sorted(self._connections.items())),
        )

    def _add(
        self: Self,
        name: str,
        size: int,
        activation: Any,
        sign: Any,
        *,
        input_from: str | None = None,
        output_to: str | None = None,
    ) -> Self:
        if not name or "->" in name:
            raise ValueError(
                f"expected a name without '->', which names connections, got {name!r}"
            )
        if name in self._populations:
            raise ValueError(f"there is a population {name!r} already")
        size = as_count(size, name="size")
        module = (
            Stateless(identity)
            if activation is None
            else _fitting(name, activation, size, size)
        )
        if sign is not None:
            _ = ConstrainedDense(size, 1, key=self._key, sign=sign)
            self._signs[name] = sign
        self._populations[name] = Population(name, size, module, input_from, output_to)
        return self

    def _known(self, name: str) -> Population:
        if name not in self._populations:
            raise ValueError(
                f"there is no population {name!r}"
                f"{did_you_mean(name, self._populations)}; add it before you "
                "connect it"
            )
        return self._populations[name]

    def _new_name(self, src: str, dst: str) -> str:
        name = f"{src}->{dst}"
        number = 2
        while name in self._connections:
            name = f"{src}->{dst} ({number})"
            number += 1
        return name

    def _default_transform(
        self, name: str, source: Population, target: Population, mask: Any
    ) -> AnyModule:
        key = derive(self._key, f"connection {name}")
        sign = self._signs.get(source.name)
        if sign is None and mask is None:
            return Dense(source.size, target.size, key=key)
        return ConstrainedDense(source.size, target.size, key=key, sign=sign, mask=mask)


def _as_module(given: Any) -> Any:
    """A module, of a function or a list; anything else is left to be refused."""
    if isinstance(given, Sequence) and not isinstance(given, str):
        return Sequential([_as_module(one) for one in given])
    if isinstance(given, StatefulModule):
        return given
    if isinstance(given, eqx.Module):
        raise CompositionError(
            f"expected a function on [B, features] or a module, got "
            f"{type(given).__name__}; if it works on a single example, wrap it in "
            "Lift(...)"
        )
    return Stateless(given)


def _fitting(name: str, given: Any, size: int, out_size: int) -> AnyModule:
    """A module from `[B, size]` to `[B, out_size]`, once it is clear that it is one."""
    with located(f"PopulationGraph.{name}", given):
        module = _as_module(given)
    # A batch size that no layer is likely to have as its number of features.
    batch = 5

    def step(module: AnyModule, keys: Any, x: Any) -> Any:
        return module(module.initialize_state(keys), x).output

    keys = jax.eval_shape(lambda: jax.random.split(jax.random.key(0), batch))
    x = jax.ShapeDtypeStruct((batch, size), jnp.float32)
    with located(f"PopulationGraph.{name}", module):
        came = eqx.filter_eval_shape(step, module, keys, x)
        if getattr(came, "shape", None) != (batch, out_size):
            raise CompositionError(
                f"expected an output [B, {out_size}] for an input [B, {size}], got "
                f"{shape_text(came)} with B = {batch}"
            )
    return module
