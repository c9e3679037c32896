"""A network of populations: one step of it, and a whole rollout."""

import dataclasses
from typing import Any, final

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from ..._custom_types import Keys
from .._entries import entries_for
from .._errors import expect_features
from .._ring_buffer import episode_begins, reaches_back, RingBuffer, shifted
from .._routing import (
    batch_shape,
    Call,
    Children,
    Parent,
    RunChild,
    unrolled_children,
)
from ..types import StatefulModuleOutput
from .connection import Connection
from .cycle import unroll_cycle
from .population import Population
from .schedule import Component, components, run_order
from .wiring import Wiring


@final
class GraphState(eqx.Module):
    """The carry of a `PopulationGraph`.

    - `children`: the carries of activations and transforms, by the name of their
      population or connection.
    - `delays`: the last activities of each population that has a delayed connection, as
      many as its longest delay.
    """

    children: dict[str, Any]
    delays: dict[str, RingBuffer]


@final
class PopulationGraph(Parent[Any, dict[str, Float[Array, "..."]]]):
    """Named populations with connections that may be delayed and form cycles.

    In every step a population sums up what comes in over its connections, and its entry
    of the observation if it is an input, and its activation makes its activity of that.
    A connection with a delay of `k` brings the activity of `k` steps ago, and 0 in the
    first `k` steps of an episode.

    The input is a mapping, a named tuple or a dataclass with exactly the entries that
    input populations take; the output is a `dict` with an entry for every output. All
    activities are `float32`, `[B, size]`.

    `PopulationGraphBuilder` makes one. Populations and connections can be replaced by
    `equinox.tree_at`, as all of a module can; names and delays are part of its
    structure.

    An unroll takes all of time at once wherever it can, and goes in blocks of steps
    where populations form a cycle: see `components`.
    """

    populations: dict[str, Population]
    connections: dict[str, Connection]

    @property
    def components(self) -> list[Component]:
        """The parts that an unroll goes through one after the other.

        Each names its `members` and says how many steps they advance at a time,
        `block`. That is 0 in a part without a cycle, which takes all steps at once. In
        a cycle it is at most the smallest total delay of a way around it, and that
        where all ways around share a population. `ahead` says by how many steps each
        member is then ahead of the last one.
        """
        return components(self.populations, self._wiring.edges)

    def children(self) -> Children:
        """Activations by name of population, transforms by name of connection."""
        return {
            **{name: one.activation for name, one in self.populations.items()},
            **{name: one.transform for name, one in self.connections.items()},
        }

    def carries_of_children(self, state: GraphState) -> dict[str, Any]:
        """The carries of activations and transforms."""
        return state.children

    def initialize_state(self, keys: Keys) -> GraphState:
        """Every child's carry, each born from a key of its own, and a silent past."""
        return GraphState(self._born(keys), self._wiring.silence(len(keys)))

    def reset_state(self, state: GraphState) -> GraphState:
        """Every child's carry, reset, and a silent past."""
        batches = [len(buffer.index) for buffer in state.delays.values()]
        silence = self._wiring.silence(batches[0]) if batches else {}
        return GraphState(self._reborn(state.children), silence)

    def run_step(
        self,
        run: RunChild,
        state: GraphState,
        x: Any,
        rollout_extras: Any = None,
    ) -> StatefulModuleOutput[GraphState, dict[str, Float[Array, "B _"]]]:
        """One step: populations run in the order of their connections without delay."""
        call = Call(self, run, state.children, rollout_extras, batch_shape(x))
        inputs = self._inputs(x, "B")
        activity: dict[str, Array] = {}

        def arriving(connection: Connection) -> Array:
            if connection.delay == 0:
                return activity[connection.src]
            return state.delays[connection.src].read(connection.delay)

        wiring = self._wiring
        immediate = [edge for edge in wiring.edges if edge.delay == 0]
        for name in run_order(self.populations, immediate):
            drive = wiring.drive(
                call, name, inputs.get(name), self.populations, arriving
            )
            activity[name] = wiring.activity(call, name, drive)
        delays = {
            name: buffer.write(activity[name]) for name, buffer in state.delays.items()
        }
        return self._gathered(call, activity, delays)

    def unroll(
        self,
        state: GraphState,
        xs: Any,
        is_first: Bool[Array, "T B"],
        rollout_extras: Any = None,
    ) -> StatefulModuleOutput[GraphState, dict[str, Float[Array, "T B _"]]]:
        """All of time through one component, then through the next."""
        wiring = self._wiring
        run = unrolled_children(is_first)
        call = Call(self, run, state.children, rollout_extras, is_first.shape)
        inputs = self._inputs(xs, "T, B")
        begins = episode_begins(is_first)
        past = {name: buffer.past() for name, buffer in state.delays.items()}
        activity: dict[str, Array] = {}

        def arriving(connection: Connection) -> Array:
            source, delay = activity[connection.src], connection.delay
            if delay == 0:
                return source
            late = shifted(past[connection.src], source, delay, len(source))
            return jnp.where(reaches_back(begins, delay)[..., None], late, 0)

        for component in self.components:
            outside = self.populations.keys() - component.members
            drives = {
                name: wiring.drive(call, name, inputs.get(name), outside, arriving)
                for name in component.members
            }
            if component.block:
                activity |= unroll_cycle(
                    wiring, component, call, drives, past, is_first, begins
                )
            else:
                (name,) = component.members
                activity[name] = wiring.activity(call, name, drives[name])
        fresh = wiring.silence(is_first.shape[1])
        delays = {
            name: buffer.after(activity[name], begins, fresh[name])
            for name, buffer in state.delays.items()
        }
        return self._gathered(call, activity, delays)

    @property
    def _wiring(self) -> Wiring:
        return Wiring(self.populations, self.connections)

    def _inputs(self, x: Any, axes: str) -> dict[str, Array]:
        """The entry of the observation for every input population, by its name."""
        sources = {
            name: one.input_from
            for name, one in self.populations.items()
            if one.input_from is not None
        }
        parts = entries_for(sorted(set(sources.values())), x, "input population")
        for name, source in sources.items():
            size = self.populations[name].size
            expect_features(parts[source], size, name=f"x[{source!r}]", axes=axes)
        return {
            name: parts[source].astype(jnp.float32) for name, source in sources.items()
        }

    def _gathered(
        self, call: Call, activity: dict[str, Array], delays: dict[str, RingBuffer]
    ) -> StatefulModuleOutput[Any, dict[str, Array]]:
        outputs = {
            one.output_to: activity[name]
            for name, one in self.populations.items()
            if one.output_to is not None
        }
        value = {key: outputs[key] for key in sorted(outputs)}
        gathered = call.gather(value)
        next_state = GraphState(gathered.next_state, delays)
        return dataclasses.replace(gathered, next_state=next_state)
