"""Lesions and clamps: what a module puts out is replaced."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, cast, final

import jax.tree_util as jtu

from .._tree import merge_time, shape_text, split_time
from ._errors import CompositionError
from ._wrapping import around, matching, modules_by_path, rebuilt, Wrapper
from .recording import Recorder
from .types import AnyModule, expect_module, StatefulModuleOutput


@final
class Override(Wrapper):
    """Lets a module run, and puts out a function of its output instead.

    Carry, metrics, extras and regularisation are those of the module: a clamped LSTM
    goes on remembering, and only what others see of it is clamped.

    `with_override` puts them into a network.
    """

    wrapped: AnyModule
    fn: Callable[[Any], Any]

    def __init__(self, wrapped: Any, fn: Any):
        """**Arguments:**

        - `wrapped`: the module.
        - `fn`: takes its output, leaves `[B, ...]`, and returns another one of the same
          shapes and dtypes. It must treat each row by itself: in a replay it sees
          `T * B` rows.
        """
        expect_module("Override", wrapped)
        if not callable(fn):
            raise TypeError(
                "expected a function of a module's output, such as jnp.zeros_like, got "
                f"{fn!r}"
            )
        self.wrapped = wrapped
        self.fn = fn

    def changed(
        self, result: StatefulModuleOutput[Any, Any], time: tuple[int, ...] | None
    ) -> StatefulModuleOutput[Any, Any]:
        """The same, with another output."""
        if time is None:
            value = self._expected(self.fn(result.output), result.output)
        else:
            rows = merge_time(result.output)
            value = split_time(self._expected(self.fn(rows), rows), time)
        return dataclasses.replace(result, output=value)

    def _expected(self, value: Any, output: Any) -> Any:
        """The new output, if it is like the old one."""
        if _kind(value) != _kind(output):
            raise CompositionError(
                "expected an override to return what it is given, "
                f"{_text(output)}, with other numbers, got {_text(value)}"
            )
        return value


def with_override(network: Any, overrides: Mapping[str, Callable[[Any], Any]]) -> Any:
    """A network in which the outputs of some modules are replaced.

    For perturbation experiments: `jnp.zeros_like` is a lesion, `functools.partial(
    jnp.full_like, fill_value=1.0)` a clamp, and any other function of the output will
    do. It holds wherever the network runs, in rollouts, replays and evaluations, and
    gradients pass through the function. What `with_recording` records of such a module
    is what others see of it, in whichever order the two are called.

    **Arguments:**

    - `network`: the network.
    - `overrides`: by path, as in `with_recording`, a function of the output of the
      module that stands there. It takes and returns leaves `[B, ...]`, and treats each
      row by itself. Several for one module are applied one after the other. Give a
      named function rather than a fresh `lambda`: functions compare by identity, and a
      new one compiles anew.

    **Returns:**

    The network, with an `Override` around each of those modules.

    **Raises:**

    `ValueError` for a path at which nothing stands, and `TypeError` for what is no
    function.

    **Example:**

    ```python
    lesioned = with_override(network, {"[1].M1": jnp.zeros_like})
    evaluate(env, lesioned, key=key, n_envs=64, max_episode_length=500)
    ```
    """
    expect_module("with_override", network)
    if not isinstance(cast(Any, overrides), Mapping):
        raise TypeError(
            "expected a mapping from paths of modules to functions of their outputs, "
            f"got {type(overrides).__name__}"
        )
    paths = [path for path, _ in modules_by_path(network)]
    chosen: dict[str, list[Callable[[Any], Any]]] = {}
    for pattern, fn in overrides.items():
        for path in matching(pattern, paths):
            chosen.setdefault(path, []).append(fn)

    def override(path: str, module: AnyModule) -> AnyModule:
        if isinstance(module, Recorder):
            return around(module, override(path, module.wrapped))
        for fn in chosen.get(path, ()):
            module = Override(module, fn)
        return module

    return rebuilt(network, override)


def _kind(tree: Any) -> Any:
    """What two outputs must have in common."""
    leaves, structure = jtu.tree_flatten(tree)
    return structure, [
        (getattr(leaf, "shape", None), getattr(leaf, "dtype", None)) for leaf in leaves
    ]


def _text(tree: Any) -> str:
    """Dtypes and shapes, for an error message."""
    leaves = jtu.tree_leaves(tree)
    if not leaves or not all(hasattr(leaf, "dtype") for leaf in leaves):
        return f"{type(tree).__name__} {tree!r}"
    return f"{' and '.join({str(leaf.dtype): 0 for leaf in leaves})} {shape_text(tree)}"
