"""Layers of Equinox, and whatever else works on a single example, as modules."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any, final

import equinox as eqx
import jax
import jax.tree_util as jtu
from jaxtyping import TypeCheckError

from .._custom_types import Keys
from .._expect import expect_flags
from .._keys import advance_keys, derive, expect_keys
from .._tree import shape_text
from ._errors import CompositionError
from .types import (
    ChainedModule,
    has_inference_flag,
    output,
    StatefulModule,
    StatefulModuleOutput,
)


_BY_POSITION = (
    inspect.Parameter.POSITIONAL_ONLY,
    inspect.Parameter.POSITIONAL_OR_KEYWORD,
)


@final
class Lift(ChainedModule[Any, Any, Any, Any]):
    """A layer that works on a single example, such as those of `equinox.nn`.

    The layer is mapped over the batch, in a replay over all `T * B` rows at once. Its
    arrays train, and `equinox.nn.inference_mode` and `equinox.tree_at` reach into it.

    A layer that draws, such as `equinox.nn.Dropout`, is called with a key for each
    row, `layer(x, key=key)`; the carry is then a chain of keys `[B]`, else `()`.

    **Example:**

    ```python
    Lift(eqx.nn.LayerNorm(64))
    ```
    """

    layer: Callable[..., Any]
    draws: bool = eqx.field(static=True)
    fresh_keys: bool = eqx.field(static=True)

    def __init__(
        self, layer: Any, *, draws: bool | None = None, fresh_keys: bool = False
    ):
        """**Arguments:**

        - `layer`: called as `layer(x)`; takes and returns trees of arrays without a
          batch axis.
        - `draws`: whether it is called as `layer(x, key=key)`. By default it is where
          there is an `inference` flag somewhere in the layer, as in all that draws in
          `equinox.nn`, or where the layer requires a key.
        - `fresh_keys`: whether a new chain of keys begins at each reset.

        **Raises:**

        `CompositionError` for a layer that looks at other examples, that has a memory,
        or that takes several inputs.
        """
        _expect_layer(layer)
        parameters = _parameters(layer)
        _expect_one_input(layer, parameters)
        expect_flags(fresh_keys=fresh_keys)
        if draws is None:
            draws = _requires_key(parameters) or has_inference_flag(layer)
            advice = (
                "; its inference flag says that it draws, and Lift(layer, draws=False) "
                "that it does not"
            )
        else:
            expect_flags(draws=draws)
            advice = ""
        if draws and not _takes_key(parameters):
            raise CompositionError(
                f"{layer_name(layer)} cannot draw: it takes no `key`{advice}"
            )
        self.layer = layer
        self.draws = draws
        self.fresh_keys = fresh_keys

    def initialize_state(self, keys: Keys) -> Any:
        """The chain of keys of a layer that draws."""
        expect_keys(keys)
        return keys if self.draws else ()

    def reset_state(self, state: Any) -> Any:
        """The chain goes on, or a new one is derived from it."""
        return derive(state, "episode") if self.draws and self.fresh_keys else state

    def advance(self, state: Any) -> tuple[Any, Any]:
        """The chain's next link, and a key to draw from."""
        return advance_keys(state) if self.draws else ((), ())

    def apply(
        self, draw: Any, x: Any, rollout_extras: Any = None
    ) -> StatefulModuleOutput[Any, Any]:
        """Applies the layer to every row of `x`, leaves `[B, ...]`."""
        leaves = jtu.tree_leaves(x)
        if not leaves:
            raise CompositionError("expected at least one array, got an empty tree")
        try:
            value = jax.vmap(self._one)(x, draw)
        except (CompositionError, TypeCheckError):
            raise
        except Exception as error:
            raise CompositionError(
                f"expected x [B, ...] with rows that {layer_name(self.layer)} takes, "
                f"got {shape_text(x)}; on one row it raised {_in_one_line(error)}"
            ) from error
        return output(value, batch=len(leaves[0]))

    def _one(self, x: Any, draw: Any) -> Any:
        return self.layer(x, key=draw) if self.draws else self.layer(x)


def layer_name(layer: Any) -> str:
    """How messages call a function, a class or a layer."""
    return getattr(layer, "__name__", type(layer).__name__)


def _expect_layer(layer: Any) -> None:
    name = layer_name(layer)
    if isinstance(layer, type):
        raise CompositionError(
            f"Lift expects a layer, got the class {name}; make one: {name}(...)"
        )
    if isinstance(layer, StatefulModule):
        raise CompositionError(
            f"Lift expects a layer that works on a single example; {name} is a module "
            "already and stands by itself"
        )
    inside = filter(_is_module, jtu.tree_leaves(layer, is_leaf=_is_module))
    for module in inside:
        raise CompositionError(
            f"{name} holds the module {layer_name(module)}, which works on a whole "
            "batch; put modules in a Sequential, and lift the layers between them"
        )
    if not callable(layer):
        raise CompositionError(
            f"Lift expects a layer, got {name}, which is no callable"
        )
    if isinstance(layer, eqx.nn.GRUCell | eqx.nn.LSTMCell):
        raise CompositionError(
            f"{name} has a memory, which Lift has not; use "
            f"nnx_ppo_fn.{name.removesuffix('Cell')}, or put the cell in a "
            "RecurrentModule"
        )
    nodes = jtu.tree_leaves(layer, is_leaf=_is_state_index)
    if any(map(_is_state_index, nodes)):
        raise CompositionError(
            f"{name} keeps a state of its own, as eqx.nn.BatchNorm and "
            "eqx.nn.SpectralNorm do: it depends on the rest of the batch or changes "
            "between rollout and replay. Use nnx_ppo_fn.Normalizer for running "
            "statistics, or eqx.nn.LayerNorm, RMSNorm, GroupNorm or WeightNorm, which "
            "look at one example"
        )


def _is_module(node: Any) -> bool:
    return isinstance(node, StatefulModule)


def _is_state_index(node: Any) -> bool:
    return isinstance(node, eqx.nn.StateIndex)


def _parameters(layer: Any) -> Mapping[str, inspect.Parameter] | None:
    """What the layer is called with; `None` where Python cannot tell."""
    try:
        return inspect.signature(layer).parameters
    except (TypeError, ValueError):
        return None


def _required(
    parameters: Mapping[str, inspect.Parameter] | None, *kinds: Any
) -> list[str]:
    return [
        name
        for name, parameter in (parameters or {}).items()
        if parameter.kind in kinds and parameter.default is parameter.empty
    ]


def _expect_one_input(
    layer: Any, parameters: Mapping[str, inspect.Parameter] | None
) -> None:
    if parameters is None:
        return
    needed = _required(parameters, *_BY_POSITION)
    inputs = [name for name in needed if name != "key"]
    options = set(_required(parameters, inspect.Parameter.KEYWORD_ONLY)) - {"key"}
    takes_any = any(
        parameter.kind in (*_BY_POSITION, inspect.Parameter.VAR_POSITIONAL)
        for parameter in parameters.values()
    )
    if len(inputs) > 1 or options or not takes_any:
        given = ", ".join([*needed, *sorted(options)]) or "nothing"
        raise CompositionError(
            f"Lift calls a layer with one input, but {layer_name(layer)} takes "
            f"{given}. Wrap it in an eqx.Module whose __call__ takes one tree and "
            "calls it"
        )


def _requires_key(parameters: Mapping[str, inspect.Parameter] | None) -> bool:
    """Whether a `key` is asked for, by name or after the input."""
    by_name = _required(parameters, inspect.Parameter.KEYWORD_ONLY)
    return "key" in [*by_name, *_required(parameters, *_BY_POSITION)[1:]]


def _takes_key(parameters: Mapping[str, inspect.Parameter] | None) -> bool:
    return (
        parameters is None
        or "key" in parameters
        or any(p.kind is inspect.Parameter.VAR_KEYWORD for p in parameters.values())
    )


def _in_one_line(error: Exception) -> str:
    # Equinox raises some errors with their sentence in pieces.
    lines = "".join(map(str, error.args)).strip().splitlines()
    kind = type(error).__name__
    return f"{kind}: {lines[0]}" if lines else kind
