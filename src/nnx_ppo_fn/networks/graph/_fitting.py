"""Makes modules of what populations and connections are given, and refuses the rest."""

from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer
from jaxtyping import Array, Float

from ..._tree import shape_text
from .._errors import CompositionError, located
from ..constrained import ConstrainedDense
from ..containers import Sequential
from ..feedforward import Stateless
from ..types import AnyModule, StatefulModule


def fitting(
    name: str, given: Any, size: int, out_size: int, *, sign: Array | None = None
) -> AnyModule:
    """A module from `[B, size]` to `[B, out_size]`, once it is clear that it is one.

    **Arguments:**

    - `name`: of the population or connection, for errors.
    - `given`: a module, a function on `[B, size]`, or a list of those.
    - `size`, `out_size`: of the input and the output.
    - `sign`: 1 and -1, `[size]`, where the weights are to have these signs.

    **Raises:**

    `CompositionError` that says what was expected and what came.
    """
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
        if sign is not None:
            _expect_sign(module, sign)
    return module


def _as_module(given: Any) -> Any:
    """A module, of a function or a list; anything else is left to be refused."""
    if isinstance(given, Sequence) and not isinstance(given, str):
        return Sequential([_as_module(one) for one in given])
    if isinstance(given, StatefulModule):
        return given
    if isinstance(given, type) and issubclass(given, eqx.Module):
        raise CompositionError(
            f"expected a module, got its class; make one: {given.__name__}(...)"
        )
    if isinstance(given, eqx.Module):
        raise CompositionError(
            f"expected a function on [B, features] or a module, got "
            f"{type(given).__name__}; if it works on a single example, wrap it in "
            "Lift(...)"
        )
    return Stateless(given)


def _expect_sign(transform: AnyModule, sign: Array) -> None:
    """Refuses a transform that does not begin with weights of this sign."""
    first = transform
    while isinstance(first, Sequential):
        first = first.layers[0]
    kept = first.sign if isinstance(first, ConstrainedDense) else None
    if kept is not None and _same(kept.value, sign):
        return
    came = type(first).__name__
    if isinstance(first, ConstrainedDense):
        came += f" with {'no sign' if kept is None else _text(kept.value)}"
    raise CompositionError(
        f"expected a ConstrainedDense with {_text(sign)}, which is that of the "
        f"population it starts from, alone or as the first of a list, got {came}"
    )


def _same(sign: Array, other: Array) -> bool:
    """Whether two signs are the same, as far as that can be known."""
    if isinstance(sign, Tracer) or isinstance(other, Tracer):
        return sign.shape == other.shape
    return np.array_equal(sign, other)


def _text(sign: Float[Array, " size"]) -> str:
    if isinstance(sign, Tracer):
        return "a sign that is being traced"
    values = np.asarray(sign, np.int32)
    if np.all(values == values[0]):
        return f"the sign {values[0]}"
    text = np.array2string(values, separator=", ", threshold=20, edgeitems=5)
    return f"the signs {text}"
