"""Modules that stand around one other module, and putting them in by path.

A path says where a module stands: `[1].action[0]` is the first module in the `action`
port of the second module of a `Sequential`. The network itself has the empty path. What
stands around a module stands at that module's path.
"""

import dataclasses
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, final, TypeVar

import equinox as eqx
from jaxtyping import Array, Bool

from .._custom_types import Keys
from .._suggest import did_you_mean
from ._routing import named, Parent
from .types import AnyModule, expect_output, StatefulModuleOutput, UnrolledModule
from .unroll import unroll


Self = TypeVar("Self", bound="Wrapper")


class Wrapper(UnrolledModule[Any, Any, Any]):
    """A module that lets another one run, and changes what that has said.

    The carry is that of the other module, born from the very same keys.
    """

    wrapped: eqx.AbstractVar[AnyModule]
    mark: eqx.AbstractClassVar[str]
    """What `summary` says of the other module, such as `recorded`."""

    @final
    def initialize_state(self, keys: Keys) -> Any:
        """The other module's carry."""
        return self.wrapped.initialize_state(keys)

    @final
    def reset_state(self, state: Any) -> Any:
        """The other module's carry, reset."""
        return self.wrapped.reset_state(state)

    @final
    def update_statistics(self: Self, rollout_extras: Any) -> Self:
        """Around the other module with its statistics brought up to date."""
        updated = self.wrapped.update_statistics(rollout_extras)
        return around(self, updated)

    @final
    def said(
        self, state: Any, x: Any, rollout_extras: Any
    ) -> StatefulModuleOutput[Any, Any]:
        """What the other module says in a step."""
        result = self.wrapped(state, x, rollout_extras)
        expect_output(result, "__call__")
        return result

    @final
    def said_over_time(
        self, state: Any, xs: Any, is_first: Bool[Array, "T B"], rollout_extras: Any
    ) -> StatefulModuleOutput[Any, Any]:
        """What the other module says in an unroll, in its own way through time."""
        result = unroll(self.wrapped, state, xs, is_first, rollout_extras)
        expect_output(result, "unroll")
        return result


def around(wrapper: Self, module: AnyModule) -> Self:
    """A wrapper as it is, around another module."""
    if module is wrapper.wrapped:
        return wrapper
    return dataclasses.replace(wrapper, wrapped=module)


def unwrapped(module: AnyModule) -> tuple[list[Wrapper], AnyModule]:
    """What stands around a module, the outermost first, and the module itself."""
    wrappers: list[Wrapper] = []
    while isinstance(module, Wrapper):
        wrappers.append(module)
        module = module.wrapped
    return wrappers, module


def below(path: str, name: str | int) -> str:
    """The path of a child.

    It is `path[0]` for a position, `path.name` for a name, and `path['a.b']` for a name
    in which there are characters that mean something in paths.

    **Arguments:**

    - `path`: of its parent.
    - `name`: of the child, or its position.
    """
    if isinstance(name, int) or name.isdecimal():
        return f"{path}[{name}]"
    return f"{path}[{name!r}]" if set(".[]*") & set(name) else f"{path}.{name}"


def modules_by_path(
    module: AnyModule, path: str = ""
) -> Iterator[tuple[str, AnyModule]]:
    """A module and all that its parents run, in order, without what is around them."""
    module = unwrapped(module)[1]
    yield path, module
    if isinstance(module, Parent):
        for name, child in named(module.children()).items():
            yield from modules_by_path(child, below(path, name))


def rebuilt(
    module: AnyModule, change: Callable[[str, AnyModule], AnyModule], path: str = ""
) -> AnyModule:
    """A network in which each module is what `change` makes of it.

    **Arguments:**

    - `module`: the network.
    - `change`: takes the path of a module, and the module with all that is around it.
      Its own children have been through it before.
    """
    return change(path, _with_rebuilt_children(module, change, path))


def _with_rebuilt_children(
    module: AnyModule, change: Callable[[str, AnyModule], AnyModule], path: str
) -> AnyModule:
    if isinstance(module, Wrapper):
        return around(module, _with_rebuilt_children(module.wrapped, change, path))
    if not isinstance(module, Parent):
        return module
    return module.with_children(
        {
            name: rebuilt(child, change, below(path, name))
            for name, child in named(module.children()).items()
        }
    )


def matching(pattern: Any, paths: Iterable[str]) -> list[str]:
    """The paths that a pattern means.

    **Arguments:**

    - `pattern`: a path, in which `*` stands for any characters. All others, brackets
      included, stand for themselves.
    - `paths`: of all modules.

    **Raises:**

    `TypeError` for what is no string, and `ValueError` where nothing matches.
    """
    if not isinstance(pattern, str):
        raise TypeError(
            f"expected the path of a module, such as '[1].action[0]', got {pattern!r}"
        )
    every = list(paths)
    expression = ".*".join(map(re.escape, pattern.split("*")))
    found = [path for path in every if re.fullmatch(expression, path)]
    if not found:
        raise ValueError(
            f"no module stands at {pattern!r}{did_you_mean(pattern, every)}; paths are "
            f"{', '.join(map(repr, every))}"
        )
    return found
