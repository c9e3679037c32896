"""What runs into what: the sums that populations receive, for any span of time."""

from collections.abc import Callable, Collection
from typing import final, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

from ..._tree import shape_text
from .._errors import CompositionError
from .._ring_buffer import RingBuffer
from .._routing import Call
from .connection import Connection
from .population import Population
from .schedule import Edge


@final
class Wiring(NamedTuple):
    """Populations and connections, each by name."""

    populations: dict[str, Population]
    connections: dict[str, Connection]

    @property
    def edges(self) -> list[Edge]:
        """The connections, as far as their order in time goes."""
        return [Edge(one.src, one.dst, one.delay) for one in self.connections.values()]

    def longest_delays(self) -> dict[str, int]:
        """The longest delay of every population with a delayed connection."""
        delayed = [edge for edge in self.edges if edge.delay > 0]
        return {
            src: max(edge.delay for edge in delayed if edge.src == src)
            for src in sorted({edge.src for edge in delayed})
        }

    def silence(self, batch: int) -> dict[str, RingBuffer]:
        """A past without activity, for every population with a delayed connection."""
        return {
            name: RingBuffer.filled(
                jnp.zeros((batch, delay, self.populations[name].size), jnp.float32)
            )
            for name, delay in self.longest_delays().items()
        }

    def drive(
        self,
        call: Call,
        name: str,
        received: Array | None,
        sources: Collection[str],
        arriving: Callable[[Connection], Array],
    ) -> Float[Array, "... size"]:
        """The sum of what a population receives, `[..., size]`.

        **Arguments:**

        - `call`: runs the transforms.
        - `name`: of the population.
        - `received`: what there is already, such as its entry of the observation.
        - `sources`: the populations whose connections are added.
        - `arriving`: gives the activity that goes into a connection's transform.
        """
        size = self.populations[name].size
        total = received
        for key, connection in self.connections.items():
            if connection.dst == name and connection.src in sources:
                part = self._sized(call, key, arriving(connection), size)
                total = part if total is None else total + part
        if total is None:
            return jnp.zeros((*call.batch_shape, size), jnp.float32)
        return total

    def activity(
        self, call: Call, name: str, drive: Float[Array, "... size"]
    ) -> Float[Array, "... size"]:
        """What a population makes of the sum that it receives, `[..., size]`."""
        return self._sized(call, name, drive, self.populations[name].size)

    def _sized(self, call: Call, name: str, x: Array, size: int) -> Array:
        value = call(name, x)
        if getattr(value, "shape", None) != (*call.batch_shape, size):
            axes = ", ".join(map(str, (*call.batch_shape, size)))
            raise CompositionError(
                f"expected PopulationGraph.{name} to return an array [{axes}], got "
                f"{shape_text(value)}"
            )
        return value.astype(jnp.float32)
