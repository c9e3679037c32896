"""A population of neurons in a graph."""

from typing import final

import equinox as eqx

from ..types import AnyModule


@final
class Population(eqx.Module):
    """A named group of neurons, as `PopulationGraphBuilder` makes it.

    - `size`: how many neurons.
    - `activation`: what makes the activity of the sum of all that comes in, any module
      from `[B, size]` to `[B, size]`.
    - `input_from`: the entry of the observation that is added to the sum, if any.
    - `output_to`: the entry of the graph's output that is the activity, if any.
    """

    name: str = eqx.field(static=True)
    size: int = eqx.field(static=True)
    activation: AnyModule
    input_from: str | None = eqx.field(static=True)
    output_to: str | None = eqx.field(static=True)
