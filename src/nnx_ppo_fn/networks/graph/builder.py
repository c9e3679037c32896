"""Describes a graph of populations, piece by piece."""

from graphlib import CycleError
from typing import Any, final, SupportsIndex, TypeVar

from jaxtyping import Array

from ..._expect import as_count, expect_flags
from ..._keys import derive, expect_key
from ..._suggest import did_you_mean
from ..constrained import as_signs, ConstrainedDense
from ..feedforward import Dense, Stateless
from ..types import AnyModule
from ._fitting import fitting
from ._names import expect_entry, expect_name, expect_string
from .connection import Connection
from .graph import PopulationGraph
from .population import Population
from .schedule import Edge, run_order


Self = TypeVar("Self", bound="PopulationGraphBuilder")


def identity(x: Array) -> Array:
    """The activation of a population that was given none."""
    return x


@final
class PopulationGraphBuilder:
    """Collects populations and connections, and makes a `PopulationGraph` of them.

    Every method but `finalize` returns the builder. What does not fit is refused at
    once, in the line in which it stands, and leaves the builder as it was.

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
        self._signs: dict[str, Array] = {}
        self._connections: dict[str, Connection] = {}

    def add_population(
        self: Self,
        name: str,
        size: SupportsIndex,
        *,
        activation: Any = None,
        sign: Any = None,
    ) -> Self:
        """Adds a population that is neither input nor output.

        **Arguments:**

        - `name`: not of digits alone, and without `->` and the characters `*`, `.`,
          `/`, `[`, `]`, `(` and `)`, which mean something in paths.
        - `size`: how many neurons.
        - `activation`: makes the activity of the sum of all that comes in: a function
          on `[B, size]`, a module, or a list of those, one after the other; `None` for
          the sum itself. A `GaussianNoise` makes noisy neurons.
        - `sign`: Dale's law: 1 for neurons that excite whatever they are connected
          with, -1 for those that inhibit; one number or one per neuron. The
          connections that start here then each begin with a `ConstrainedDense` of this
          sign. Activities should not be negative.

        **Raises:**

        `ValueError` for a name that is taken or not possible, a size below 1, and signs
        other than 1 and -1; `TypeError` for a name that is no string, a size that is no
        integer, and signs that are no numbers; `CompositionError`, which is a
        `ValueError`, for an activation that is no function and no module, or that does
        not give `[B, size]`.
        """
        return self._add(name, size, activation, sign)

    def add_input(
        self: Self,
        name: str,
        size: SupportsIndex,
        *,
        input_from: str,
        activation: Any = None,
        sign: Any = None,
    ) -> Self:
        """Adds a population that also receives an entry of the observation.

        **Arguments:**

        - `input_from`: which entry, `[B, size]`; several populations of one size may
          share one.
        - the rest: as in `add_population`.

        **Raises:**

        As `add_population`, and `ValueError` for an entry that another input takes with
        another size.
        """
        return self._add(name, size, activation, sign, input_from=input_from)

    def add_output(
        self: Self,
        name: str,
        size: SupportsIndex,
        *,
        output_to: str | None = None,
        activation: Any = None,
        sign: Any = None,
    ) -> Self:
        """Adds a population whose activity is an entry of the graph's output.

        **Arguments:**

        - `output_to`: which entry; that of the population's own name by default.
        - the rest: as in `add_population`.

        **Raises:**

        As `add_population`, and `ValueError` for an entry that is another output's.
        """
        entry = name if output_to is None else output_to
        return self._add(name, size, activation, sign, output_to=entry)

    def connect(
        self: Self,
        src: str,
        dst: str,
        *,
        transform: Any = None,
        delay: SupportsIndex = 0,
        reciprocal: bool = False,
        mask: Any = None,
    ) -> Self:
        """Adds a connection, which is called `src->dst`.

        A second one between the same populations is called `src->dst (2)`.

        **Arguments:**

        - `src`, `dst`: names of populations that have been added; one and the same for
          a connection with itself.
        - `transform`: what becomes of the activity on the way: a module from
          `[B, src.size]` to `[B, dst.size]`, a function, or a list of those. By default
          a linear `Dense`, or a `ConstrainedDense` where `src` has a sign or there is a
          mask. Where `src` has a sign, the transform must be a `ConstrainedDense` with
          this very sign, or a list that begins with one; what follows in the list can
          undo Dale's law, and is yours to choose.
        - `delay`: how many steps the activity takes to arrive; 0 for the same step. Not
          all connections of a cycle may have the delay 0.
        - `reciprocal`: whether to add the connection from `dst` to `src` as well, with
          the same delay and weights of its own.
        - `mask`: which weights of the default transform there are,
          `[src.size, dst.size]`, as booleans or as 0 and 1.

        **Raises:**

        `ValueError` for names that are not there, a delay below 0, a cycle without
        delay, and arguments that exclude each other; `TypeError` for names that are no
        strings, and a delay that is no integer; `CompositionError` for a transform that
        does not fit, or that does not keep the sign of `src`.
        """
        source, target = self._known(src), self._known(dst)
        steps = as_count(delay, name="delay", least=0)
        expect_flags(reciprocal=reciprocal)
        if transform is not None and mask is not None:
            raise ValueError(
                "a mask is for the weights of the default transform; leave one of the "
                "two out, or give a ConstrainedDense that has the mask as transform"
            )
        added = [Edge(src, dst, steps)]
        if reciprocal:
            _expect_way_back(src, dst, transform, mask)
            added.append(Edge(dst, src, steps))
        self._expect_run_order(added)
        name = self._new_name(src, dst)
        module = (
            self._default_transform(name, source, target, mask)
            if transform is None
            else fitting(
                name,
                transform,
                source.size,
                target.size,
                sign=self._signs.get(src),
            )
        )
        self._connections[name] = Connection(src, dst, module, steps)
        return self.connect(dst, src, delay=steps) if reciprocal else self

    def finalize(self) -> PopulationGraph:
        """The graph of all that has been added.

        **Raises:**

        `ValueError` that says what is missing: an input, an output, or a connection
        that leads to an output.
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
        return PopulationGraph(
            dict(sorted(self._populations.items())),
            dict(sorted(self._connections.items())),
        )

    def _add(
        self: Self,
        name: str,
        size: SupportsIndex,
        activation: Any,
        sign: Any,
        *,
        input_from: str | None = None,
        output_to: str | None = None,
    ) -> Self:
        expect_name(name)
        if name in self._populations:
            raise ValueError(f"there is a population {name!r} already")
        size = as_count(size, name="size")
        if input_from is not None:
            self._expect_input(name, size, input_from)
        if output_to is not None:
            self._expect_output(name, output_to)
        signs = None if sign is None else as_signs(sign, size)
        module = (
            Stateless(identity)
            if activation is None
            else fitting(name, activation, size, size)
        )
        self._populations[name] = Population(name, size, module, input_from, output_to)
        if signs is not None:
            self._signs[name] = signs
        return self

    def _expect_input(self, name: str, size: int, entry: str) -> None:
        expect_entry("input_from", entry)
        for other in self._populations.values():
            if other.input_from == entry and other.size != size:
                raise ValueError(
                    f"{name!r} and {other.name!r} both take the entry {entry!r}, with "
                    f"{size} and with {other.size} features; give both the same size, "
                    "or one of them another input_from"
                )

    def _expect_output(self, name: str, entry: str) -> None:
        expect_entry("output_to", entry)
        for other in self._populations.values():
            if other.output_to == entry:
                raise ValueError(
                    f"{name!r} and {other.name!r} are both the output {entry!r}; "
                    "give one of them another output_to"
                )

    def _expect_run_order(self, added: list[Edge]) -> None:
        """Refuses connections that would close a cycle without delay."""
        edges = [
            Edge(one.src, one.dst, one.delay) for one in self._connections.values()
        ]
        try:
            run_order(
                self._populations, [one for one in edges + added if one.delay == 0]
            )
        except CycleError as error:
            cycle = " -> ".join(map(repr, error.args[1]))
            raise ValueError(
                f"a cycle without delay: {cycle}; give one of these connections a "
                "delay of at least 1"
            ) from None

    def _known(self, name: str) -> Population:
        expect_string("the name of a population", name)
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


def _expect_way_back(src: str, dst: str, transform: Any, mask: Any) -> None:
    if src == dst:
        raise ValueError(
            f"a connection of {src!r} with itself has no way back; leave out "
            "reciprocal=True, or call connect twice for two connections"
        )
    if transform is not None or mask is not None:
        given = "transform" if transform is not None else "mask"
        raise ValueError(
            f"a {given} is for one direction; leave out reciprocal=True and "
            f"connect {dst!r} with {src!r} in a second call"
        )
