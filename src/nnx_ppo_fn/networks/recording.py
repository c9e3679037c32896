"""Looks inside a network: what each of its modules puts out, step by step."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, cast, ClassVar, final

import jax.tree_util as jtu
from jaxtyping import Array, Bool

from .._tree import shape_text
from ._errors import CompositionError
from ._routing import Parent
from ._wrapping import around, below, matching, modules_by_path, rebuilt, Wrapper
from .types import (
    ACTIVATION_KEY,
    AnyModule,
    expect_module,
    StatefulModule,
    StatefulModuleOutput,
)
from .unroll import unroll_by_step


@final
class Recorder(Wrapper):
    """Lets a module run, and adds its activation to the metrics.

    The activation is what the module's `recorded` makes of a step, its output unless
    the module says otherwise, and stands under `ACTIVATION_KEY`. Output, carry, extras
    and regularisation are those of the module, bit for bit.

    `with_recording` puts them into a network.
    """

    wrapped: AnyModule
    mark: ClassVar[str] = "recorded"

    def __init__(self, wrapped: Any):
        """**Arguments:**

        - `wrapped`: the module.
        """
        expect_module("Recorder", wrapped)
        self.wrapped = wrapped

    def __call__(
        self, state: Any, x: Any, rollout_extras: Any = None
    ) -> StatefulModuleOutput[Any, Any]:
        """One step of the module, with the activation among the metrics."""
        result = self.said(state, x, rollout_extras)
        activation = self.wrapped.recorded(result)
        _expect_rows(activation, self.wrapped, len(result.regularization_loss))
        return _with_activation(result, activation)

    def unroll(
        self,
        state: Any,
        xs: Any,
        is_first: Bool[Array, "T B"],
        rollout_extras: Any = None,
    ) -> StatefulModuleOutput[Any, Any]:
        """All of time through the module, with the activations among the metrics.

        A module that has a `recorded` of its own runs a second time for it, step by
        step: what that looks at is known of single steps only.
        """
        result = self.said_over_time(state, xs, is_first, rollout_extras)
        activation = result.output
        if type(self.wrapped).recorded is not StatefulModule.recorded:
            stepped = unroll_by_step(self, state, xs, is_first, rollout_extras)
            activation = stepped.metrics[ACTIVATION_KEY]
        return _with_activation(result, activation)


def _with_activation(
    result: StatefulModuleOutput[Any, Any], activation: Any
) -> StatefulModuleOutput[Any, Any]:
    metrics = {**result.metrics, ACTIVATION_KEY: activation}
    return dataclasses.replace(result, metrics=metrics)


def _expect_rows(activation: Any, module: AnyModule, batch: int) -> None:
    """Refuses what a `recorded` should not have returned."""
    for leaf in jtu.tree_leaves(activation):
        shape = getattr(leaf, "shape", None)
        if shape is None or shape[:1] != (batch,):
            came = type(leaf).__name__ if shape is None else shape_text(leaf)
            raise CompositionError(
                f"expected {type(module).__name__}.recorded to return arrays [B, ...] "
                f"with B = {batch}, got {came}"
            )


def with_recording(net: Any, select: str | Sequence[str] | None = None) -> Any:
    """A network that records the activations of its modules.

    Its outputs are those of the network, bit for bit, and it shares the network's
    weights. It records what is selected and nothing else, whatever the network has
    recorded before.

    It is meant for looking, not for training: activations would be averaged into the
    logged metrics. Train the network itself.

    **Arguments:**

    - `net`: the network.
    - `select`: paths of the modules to record, one or several. A path is that of
      `summary`, such as `[1].action[0]`, or `[1].M1` for the population `M1` of a graph
      and `[1].M1->BG` for a connection; the network itself has the empty path. A `*`
      stands for any characters, so that `[1]*` is the second module with all that is in
      it and `*` is everything. `None` records all modules that hold no others, and `()`
      none.

    **Returns:**

    The network, with a `Recorder` around each of those modules.

    **Raises:**

    `ValueError` for a path at which nothing stands.

    **Example:**

    ```python
    recorded = with_recording(network, "[1].M1*")
    result = recorded(state, x)
    activations = extract_activations(result.metrics)
    ```
    """
    expect_module("with_recording", net)
    modules = dict(modules_by_path(net))
    if select is None:
        chosen = {path for path, one in modules.items() if not isinstance(one, Parent)}
    else:
        patterns = [select] if isinstance(select, str) else select
        chosen = {path for one in patterns for path in matching(one, modules)}

    def record(path: str, module: AnyModule) -> AnyModule:
        plain = _without_recorders(module)
        return Recorder(plain) if path in chosen else plain

    return rebuilt(net, record)


def _without_recorders(module: AnyModule) -> AnyModule:
    if isinstance(module, Recorder):
        return _without_recorders(module.wrapped)
    if isinstance(module, Wrapper):
        return around(module, _without_recorders(module.wrapped))
    return module


def extract_activations(metrics: Mapping[str, Any]) -> dict[str, Any]:
    """The activations among the metrics of a recording network.

    **Arguments:**

    - `metrics`: those of a step or of an unroll, as the network has returned them.

    **Returns:**

    By path of the module, as in `with_recording`, what it recorded: an array
    `[B, ...]` of a step or `[T, B, ...]` of an unroll, or a tree of them. Empty where
    nothing was recorded.

    **Example:**

    ```python
    activations = extract_activations(result.metrics)
    hidden = activations["[0].action[1]"]
    ```
    """
    return _found(metrics, "")


def _found(metrics: Mapping[Any, Any], path: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in metrics.items():
        if name == ACTIVATION_KEY:
            found[path] = value
        elif isinstance(value, Mapping):
            inside = cast(Mapping[Any, Any], value)
            found |= _found(inside, below(path, str(name)))
    return found
