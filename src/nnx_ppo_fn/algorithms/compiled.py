"""Compiles functions whose arguments include environments and settings."""

import functools as ft
from collections.abc import Callable
from typing import Any, final

import jax


@final
class ByIdentity:
    """Makes an object that cannot be hashed, such as one that holds arrays, static.

    Two wrappers are equal if they hold the very same object.
    """

    def __init__(self, value: Any):
        """Wraps `value`."""
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ByIdentity) and other.value is self.value

    def __hash__(self) -> int:
        return id(self.value)


def compiled(
    function: Callable[..., Any],
    *,
    static: tuple[int, ...],
    donate: tuple[int, ...] = (),
    quickly: bool = False,
) -> Callable[..., Any]:
    """`jax.jit` with one cache per function, and static arguments of any kind.

    A static argument that can be hashed is compared by value, so that an equal
    environment does not compile anew. Any other is compared by identity.

    **Arguments:**

    - `function`: a function of a module, not a closure.
    - `static`, `donate`: positions of arguments, as for `jax.jit`.
    - `quickly`: whether the compiler leaves out its optimisations. JAX refuses this
      for a function that is part of another compiled one.
    """
    jitted = _jitted(function, static, donate, quickly)

    def call(*arguments: Any) -> Any:
        return jitted(
            *(
                _hashable(argument) if position in static else argument
                for position, argument in enumerate(arguments)
            )
        )

    return call


@ft.cache
def _jitted(
    function: Callable[..., Any],
    static: tuple[int, ...],
    donate: tuple[int, ...],
    quickly: bool,
) -> Callable[..., Any]:
    def unwrapped(*arguments: Any) -> Any:
        return function(
            *(a.value if isinstance(a, ByIdentity) else a for a in arguments)
        )

    return jax.jit(
        unwrapped,
        static_argnums=static,
        donate_argnums=donate,
        compiler_options={"xla_backend_optimization_level": 0} if quickly else None,
    )


def _hashable(value: Any) -> Any:
    try:
        hash(value)
    except TypeError:
        return ByIdentity(value)
    return value
