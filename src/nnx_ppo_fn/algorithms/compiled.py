"""Compiles functions whose arguments include environments and settings."""

import functools as ft
from collections.abc import Callable, Mapping
from typing import Any, final

import jax


UNOPTIMISED = {"xla_backend_optimization_level": 0}
"""For what runs a few times only, so that compiling it is all of the cost."""


def step_compiler_options() -> dict[str, bool] | None:
    """With which options `jax.jit` should compile training steps on this machine.

    On a CPU, XLA has two ways of turning operations into machine code. What its newer
    one, the default, makes of a training step runs more slowly than what its older one
    does, and takes nearly twice as long to compile. `train_ppo` uses these options.
    Rollouts and evaluations by themselves are better off without.

    **Returns:**

    A mapping for `compiler_options`, or `None` for the defaults: on other devices, and
    where this version of XLA knows of no such option.

    **Example:**

    ```python
    step = jax.jit(
        ppo_step,
        static_argnums=0,
        donate_argnums=1,
        compiler_options=step_compiler_options(),
    )
    ```
    """
    options = {"xla_cpu_use_fusion_emitters": False}
    is_known = jax.default_backend() == "cpu" and _are_known(tuple(options.items()))
    return options if is_known else None


@ft.cache
def _are_known(options: tuple[tuple[str, bool], ...]) -> bool:
    """Whether the compiler takes these options; what it may be told changes."""
    try:
        jax.jit(lambda: 0, compiler_options=dict(options)).lower().compile()
    except RuntimeError:
        return False
    return True


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
    options: Mapping[str, bool | int] | None = None,
) -> Callable[..., Any]:
    """`jax.jit` with one cache per function, and static arguments of any kind.

    A static argument that can be hashed is compared by value, so that an equal
    environment does not compile anew. Any other is compared by identity.

    **Arguments:**

    - `function`: a function of a module, not a closure.
    - `static`, `donate`: positions of arguments, as for `jax.jit`.
    - `options`: for the compiler. JAX refuses them for a function that is part of
      another compiled one.
    """
    jitted = _jitted(function, static, donate, tuple((options or {}).items()))

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
    options: tuple[tuple[str, bool | int], ...],
) -> Callable[..., Any]:
    def unwrapped(*arguments: Any) -> Any:
        return function(
            *(a.value if isinstance(a, ByIdentity) else a for a in arguments)
        )

    return jax.jit(
        unwrapped,
        static_argnums=static,
        donate_argnums=donate,
        compiler_options=dict(options) or None,
    )


def _hashable(value: Any) -> Any:
    try:
        hash(value)
    except TypeError:
        return ByIdentity(value)
    return value
