"""Modules that stand around one other module."""

import dataclasses
from typing import Any, final, TypeVar

import equinox as eqx
from jaxtyping import Array, Bool

from .._custom_types import Keys
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
    def _said(
        self, state: Any, x: Any, rollout_extras: Any
    ) -> StatefulModuleOutput[Any, Any]:
        """What the other module says in a step."""
        result = self.wrapped(state, x, rollout_extras)
        expect_output(result, "__call__")
        return result

    @final
    def _said_over_time(
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
