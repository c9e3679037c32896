"""A compiled program with what it costs."""

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax

from nnx_ppo_fn import step_compiler_options

from .products import flops_of, Product, products
from .storage import Storage
from .timing import Timed


MEASURES = ("rollout", "replay", "step", "evaluation")
"""What is measured: collecting; the loss and its gradient over all that was collected;
a rollout with all its updates; and episodes without learning."""

SPREAD = "spread"
"""The whole step once more, with environments spread over all devices."""


class Memory(NamedTuple):
    """Bytes that a program holds while it runs, as its compiler says.

    - `arguments`, `outputs`, `temporary`: what it is given, returns, and needs between.
    - `peak`: all of them at once; an output in the place of a donated argument is
      counted once.
    """

    arguments: int
    outputs: int
    temporary: int
    peak: int


class Cost(NamedTuple):
    """What a program costs, as its compiler says and its products show.

    - `lower_seconds`: of tracing it and writing it down for the compiler.
    - `compile_seconds`: of compiling it.
    - `memory`: `None` on a device whose compiler does not say.
    - `flops`: of the matrix products that it cannot do without.
    - `bytes`: what it must read and write at the least: its arguments and outputs.
    - `products_seconds`: of the same products, each timed alone after the program was;
      `None` where they were not.
    """

    lower_seconds: float
    compile_seconds: float
    memory: Memory | None
    flops: float
    bytes: int
    products_seconds: float | None = None


class Program(NamedTuple):
    """Something to be timed.

    - `call`: one call.
    - `steps`: environment steps that a call is worth.
    - `cost`: `None` where the peer compiles by itself.
    - `products`: the matrix products that it cannot do without; none for a peer.
    - `storage`: of this library's step alone.
    """

    call: Timed
    steps: int
    cost: Cost | None = None
    products: tuple[Product, ...] = ()
    storage: Storage | None = None


class Opened(NamedTuple):
    """What is known of a program that is ready to be called.

    - `steps`, `cost`, `storage`: as in `Program`.
    - `parameters`: how many numbers are trained.
    """

    steps: int
    cost: Cost | None
    parameters: int
    storage: Storage | None = None

    def with_products(self, seconds: float) -> "Opened":
        """The same, with the seconds that its matrix products take alone."""
        assert self.cost is not None
        return self._replace(cost=self.cost._replace(products_seconds=seconds))


class Compiled(NamedTuple):
    """A function compiled ahead of its calls.

    - `run`: takes the function's arguments.
    - `cost`, `products`: as in `Program`.
    """

    run: Any
    cost: Cost
    products: tuple[Product, ...]


def compile_program(
    function: Callable[..., Any],
    *arguments: Any,
    donated: int | None = None,
    trips: int = 1,
    trains: bool = False,
) -> Compiled:
    """Compiles a function ahead of its calls.

    **Arguments:**

    - `function`, `arguments`: what will be called, and with what.
    - `donated`: position of an argument whose memory may be used again.
    - `trips`: how often the function's `while` loops run.
    - `trains`: whether it is compiled as `train_ppo` compiles its steps.
    """
    donate = () if donated is None else (donated,)
    options = step_compiler_options() if trains else None
    jitted = jax.jit(function, donate_argnums=donate, compiler_options=options)
    start = time.perf_counter()
    traced = jitted.trace(*arguments)
    lowered = traced.lower()
    lowered_at = time.perf_counter()
    compiled = lowered.compile()
    compiled_at = time.perf_counter()
    found = tuple(products(traced.jaxpr, trips=trips))
    bytes_ = _bytes_of(traced.jaxpr.in_avals) + _bytes_of(traced.jaxpr.out_avals)
    cost = Cost(
        lower_seconds=lowered_at - start,
        compile_seconds=compiled_at - lowered_at,
        memory=_memory_of(compiled),
        flops=flops_of(found),
        bytes=bytes_,
    )
    return Compiled(compiled, cost, found)


def _memory_of(compiled: Any) -> Memory | None:
    analysis = compiled.memory_analysis()
    if analysis is None:
        return None
    arguments = int(analysis.argument_size_in_bytes)
    outputs = int(analysis.output_size_in_bytes)
    temporary = int(analysis.temp_size_in_bytes)
    shared = int(analysis.alias_size_in_bytes)
    return Memory(
        arguments, outputs, temporary, arguments + outputs + temporary - shared
    )


def _bytes_of(shapes: Any) -> int:
    return sum(shape.size * shape.dtype.itemsize for shape in shapes)
