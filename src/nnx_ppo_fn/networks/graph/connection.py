"""A connection between two populations of a graph."""

from typing import final

import equinox as eqx

from ..types import AnyModule


@final
class Connection(eqx.Module):
    """What one population sends to another, as `PopulationGraphBuilder` makes it.

    - `src`, `dst`: the names of the two populations; they may be one and the same.
    - `transform`: what becomes of the activity on the way, any module from
      `[B, src.size]` to `[B, dst.size]`.
    - `delay`: how many steps the activity takes to arrive; 0 for the same step. The
      transform acts on what has arrived.
    """

    src: str = eqx.field(static=True)
    dst: str = eqx.field(static=True)
    transform: AnyModule
    delay: int = eqx.field(static=True)
