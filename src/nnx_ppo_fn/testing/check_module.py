"""All the laws in one call."""

from collections.abc import Callable, Collection
from typing import Any

import jax
import jax.tree_util as jtu
from jaxtyping import Array, Key

from .._keys import derive, expect_key
from ..networks._routing import Name, Parent
from ..networks.types import expect_module, StatefulModule
from ._inference_law import inference
from ._localise import blame, record_inputs
from ._reweighting_law import reweighting
from ._slicing_law import slicing
from ._statistics_law import statistics
from ._step_laws import birth, freshness, replay, reset
from ._time_laws import gradient, unroll
from ._traces import expect_batch, without_leaks
from ._trial import Trial
from .static import check_structure, STATIC_LAWS
from .violation import LAWS, LawViolation


_BY_NUMBERS: dict[str, Callable[[Trial], None]] = {
    "slicing": slicing,
    "birth": birth,
    "reset": reset,
    "replay": replay,
    "re-weighting": reweighting,
    "unroll": unroll,
    "gradient": gradient,
    "statistics": statistics,
    "freshness": freshness,
    "inference": inference,
}


def check_module(
    module: Any,
    example_input: Any,
    *,
    key: Any,
    length: int = 8,
    laws: Collection[str] | None = None,
) -> None:
    """Checks that a module obeys the laws, so that PPO may slice its experience.

    What happens to environment `i` must depend on environment `i` alone: on its key,
    its carry, its inputs and the parameters; never on who shares its batch, on how
    time is cut, or on whether it is a rollout or a replay. A module that breaks this
    trains on a wrong gradient, without an error.

    Works on layers, samplers and whole networks alike. Random inputs are made from the
    example: noise of its spread is added to floating-point numbers, and everything
    else is drawn from the values it has, so that indices stay in range.

    **Arguments:**

    - `module`: the module. Its parameters should be what they are in training.
    - `example_input`: an input as the module may meet it, any tree of arrays
      `[B, ...]` with `B` of at least 4.
    - `key`: one typed key; decides the random inputs and the carry.
    - `length`: how many steps are recorded; at least 2.
    - `laws`: the names of the laws to test, out of `LAWS`; all of them by default.

    **Raises:**

    `LawViolation` for the first law that is broken, naming the law, the innermost
    module that breaks it, the leaf, the environment and the usual cause; `ValueError`
    for arguments that cannot be tested with; `CompositionError` and `TypeError` for
    what is not a module, and what is not a typed key.

    **Example:**

    ```python
    def test_my_layer():
        layer = MyLayer(size=3)
        check_module(layer, jnp.zeros((5, 3)), key=jax.random.key(0))
    ```
    """
    expect_module("check_module", module)
    expect_key(key)
    wanted = _expect_laws(laws)
    _expect_example(example_input, length)
    if any(law in STATIC_LAWS for law in wanted):
        check_structure(module, example_input, laws=wanted)
    # The laws are about modules, not about how exactly a device multiplies.
    with jax.default_matmul_precision("highest"):
        _check_numbers(module, example_input, key, length, wanted)


def _check_numbers(
    module: StatefulModule[Any, Any, Any],
    example_input: Any,
    key: Key[Array, ""],
    length: int,
    laws: Collection[str],
) -> None:
    trial = Trial(module, example_input, key, length)

    def inputs_of_children(parent: Parent[Any, Any]) -> dict[Name, Any]:
        received: dict[Name, Any] = {}
        record_inputs(parent, trial.born, trial.steps[0].x, received)
        return received

    try:
        for law, holds in _BY_NUMBERS.items():
            if law in laws:
                with without_leaks():
                    holds(trial)
    except LawViolation as violation:
        broken = violation.law

        def check_child(child: StatefulModule[Any, Any, Any], x: Any) -> None:
            _check_numbers(child, x, derive(key, "child"), length, [broken])

        raise blame(violation, module, inputs_of_children, check_child) from None


def _expect_laws(laws: Collection[str] | None) -> Collection[str]:
    if laws is None:
        return LAWS
    if isinstance(laws, str):
        raise ValueError(
            f"expected a collection of laws, got {laws!r}; write [{laws!r}]"
        )
    unknown = sorted(set(laws) - set(LAWS))
    if unknown:
        raise ValueError(
            f"expected names of laws, got {', '.join(map(repr, unknown))}; the laws "
            f"are {', '.join(LAWS)}"
        )
    return laws


def _expect_example(example_input: Any, length: int) -> None:
    batch = expect_batch(example_input)
    if batch < 4:
        raise ValueError(
            "expected an example_input with at least 4 rows, so that rows can be left "
            f"out, repeated and swapped, got {batch}"
        )
    for path, leaf in jtu.tree_leaves_with_path(example_input):
        if isinstance(leaf, jax.ShapeDtypeStruct):
            raise ValueError(
                f"expected example_input{jtu.keystr(path)} to be an array, got a "
                "shape, which only check_structure takes"
            )
    if length < 2:
        raise ValueError(f"expected a length of at least 2 steps, got {length}")
