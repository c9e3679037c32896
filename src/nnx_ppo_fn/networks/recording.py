"""Looks inside a network: what each of its modules puts out, step by step."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, cast, final

from ._routing import Parent
from ._wrapping import below, matching, modules_by_path, rebuilt, Wrapper
from .types import ACTIVATION_KEY, AnyModule, expect_module, StatefulModuleOutput


@final
class Recorder(Wrapper):
    """Lets a module run, and adds its activation to the metrics.

    The activation is what the module's `recorded` makes of a step, its output unless
    the module says otherwise, and stands under `ACTIVATION_KEY`. Output, carry, extras
    and regularisation are those of the module, bit for bit.

    `with_recording` puts them into a network.
    """

    wrapped: AnyModule

    def __init__(self, wrapped: Any):
        """**Arguments:**

        - `wrapped`: the module.
        """
        expect_module("Recorder", wrapped)
        self.wrapped = wrapped

    def changed(
        self, result: StatefulModuleOutput[Any, Any], time: tuple[int, ...] | None
    ) -> StatefulModuleOutput[Any, Any]:
        """The same, with the activation among the metrics."""
        metrics = {**result.metrics, ACTIVATION_KEY: self.wrapped.recorded(result)}
        return dataclasses.replace(result, metrics=metrics)


def with_recording(net: Any, select: str | Sequence[str] | None = None) -> Any:
    """A network that records the activations of its modules.

    Its outputs are those of the network, bit for bit, and it shares the network's
    weights. A module that is recorded already stays as it is, so that a second call
    records more modules and none twice.

    It is meant for looking, not for training: activations would be averaged into the
    logged metrics. Train the network itself.

    **Arguments:**

    - `net`: the network.
    - `select`: paths of the modules to record, one or several. A path is that of
      `summary`, such as `[1].action[0]`, or `[1].M1` for the population `M1` of a graph
      and `[1].M1->BG` for a connection; the network itself has the empty path. A `*`
      stands for any characters, so that `[1]*` is the second module with all that is in
      it and `*` is everything. `None` records all modules that hold no others.

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
        if path not in chosen or isinstance(module, Recorder):
            return module
        return Recorder(module)

    return rebuilt(net, record)


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
