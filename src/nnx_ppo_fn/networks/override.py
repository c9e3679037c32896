"""Lesions and clamps: what a module puts out is replaced."""

import dataclasses
import functools as ft
from collections.abc import Callable, Mapping
from typing import Any, cast, ClassVar, final

import equinox as eqx
import jax.numpy as jnp
import jax.tree_util as jtu
import numpy as np
from jaxtyping import Array, Bool

from .._tree import merge_time, shape_text, split_time, strong
from ._errors import CompositionError
from ._trainable import contents, NonTrainable
from ._wrapping import matching, modules_by_path, rebuilt, Wrapper
from .types import ACTIVATION_KEY, AnyModule, expect_module, StatefulModuleOutput


@final
class Override(Wrapper):
    """Lets a module run, and puts out a function of its output instead.

    Carry, metrics, extras and regularisation are those of the module: a clamped LSTM
    goes on remembering, and only what others see of it is clamped. That is what is
    recorded of it, too, whatever the module would have shown by itself.

    `with_override` puts them into a network.
    """

    wrapped: AnyModule
    fn: NonTrainable[Callable[[Any], Any]]
    mark: ClassVar[str] = "overridden"

    def __init__(self, wrapped: Any, fn: Any):
        """**Arguments:**

        - `wrapped`: the module.
        - `fn`: takes its whole output, leaves `[B, ...]`, and returns another one of
          the same structure, shapes and dtypes. It must treat each row by itself: in a
          replay it sees `T * B` rows. Arrays in it, such as the arguments of a
          `functools.partial`, do not train.
        """
        expect_module("Override", wrapped)
        if not callable(contents(fn)):
            raise TypeError(
                "expected a function of a module's output, such as jnp.zeros_like, got "
                f"{fn!r}"
            )
        self.wrapped = wrapped
        self.fn = fn if isinstance(fn, NonTrainable) else NonTrainable(_opened(fn))

    def __call__(
        self, state: Any, x: Any, rollout_extras: Any = None
    ) -> StatefulModuleOutput[Any, Any]:
        """One step of the module, with another output."""
        result = self.said(state, x, rollout_extras)
        return _with_output(result, self._replaced(result.output))

    def unroll(
        self,
        state: Any,
        xs: Any,
        is_first: Bool[Array, "T B"],
        rollout_extras: Any = None,
    ) -> StatefulModuleOutput[Any, Any]:
        """All of time through the module, with other outputs."""
        result = self.said_over_time(state, xs, is_first, rollout_extras)
        rows = self._replaced(merge_time(result.output))
        return _with_output(result, split_time(rows, is_first.shape))

    def _replaced(self, output: Any) -> Any:
        """What the function makes of an output, if it is like that."""
        try:
            value = self.fn.value(output)
        except Exception as error:
            advice = ""
            if not eqx.is_array(output):
                advice = (
                    "; it is given the whole output, and functools.partial("
                    "jax.tree.map, fn) maps fn over its leaves"
                )
            raise CompositionError(
                f"expected an override to take {_text(output)}, got "
                f"{type(error).__name__} from it: {error}{advice}"
            ) from error
        if _kind(value) != _kind(output):
            raise CompositionError(
                "expected an override to return what it is given, "
                f"{_text(output)}, with other numbers, got {_text(value)}"
            )
        return strong(value)


def with_override(network: Any, overrides: Mapping[str, Callable[[Any], Any]]) -> Any:
    """A network in which the outputs of some modules are replaced.

    For perturbation experiments: `jnp.zeros_like` is a lesion, `functools.partial(
    jnp.full_like, fill_value=1.0)` a clamp, and any other function of the output will
    do. It holds wherever the network runs, in rollouts, replays and evaluations, and
    gradients pass through the function. What `with_recording` records of such a module
    is the output that the rest of the network receives, in whichever order the two are
    called.

    **Arguments:**

    - `network`: the network.
    - `overrides`: by path, as in `with_recording`, a function of the output of the
      module that stands there. It is given the whole output, leaves `[B, ...]`, returns
      one of the same structure, shapes and dtypes, and treats each row by itself. Where
      the output is a tree, `functools.partial(jax.tree.map, jnp.zeros_like)` reaches
      its leaves. Several for one module are applied one after the other.

    Give a named function rather than a fresh `lambda`: functions compare by identity,
    and a new one compiles anew. A `functools.partial` compares by its function and its
    arguments, and an `equinox.Module` with a `__call__` by its fields; arrays in either
    do not train, and may change without compiling anew.

    **Returns:**

    The network, with an `Override` around each of those modules.

    **Raises:**

    `ValueError` for a path at which nothing stands, and `TypeError` for what is no
    function. The network raises `CompositionError`, with the place, where a function
    does not take an output, or returns another structure, shape or dtype.

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
        for fn in chosen.get(path, ()):
            module = Override(module, fn)
        return module

    return rebuilt(network, override)


def _with_output(
    result: StatefulModuleOutput[Any, Any], value: Any
) -> StatefulModuleOutput[Any, Any]:
    """The same with another output, which is what a recording shows."""
    metrics = result.metrics
    if ACTIVATION_KEY in metrics:
        metrics = {**metrics, ACTIVATION_KEY: value}
    return dataclasses.replace(result, output=value, metrics=metrics)


def _opened(fn: Any) -> Any:
    """A function as a tree, so that its parts compare by value and arrays are seen."""

    def opened(leaf: Any) -> Any:
        if isinstance(leaf, np.ndarray):
            return jnp.asarray(leaf)
        if not isinstance(leaf, ft.partial):
            return leaf
        partial = cast(ft.partial[Any], leaf)
        arguments, keywords = _opened((partial.args, partial.keywords))
        return eqx.Partial(_opened(partial.func), *arguments, **keywords)

    return jtu.tree_map(opened, fn, is_leaf=lambda node: isinstance(node, ft.partial))


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
    kind = "" if eqx.is_array(tree) else f"{type(tree).__name__} of "
    dtypes = " and ".join({str(leaf.dtype): 0 for leaf in leaves})
    return f"{kind}{dtypes} {shape_text(tree)}"
