"""The law of slicing."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import jax.tree_util as jtu
import numpy as np
from numpy.typing import NDArray

from .._tree import is_key
from ._compare import Difference, difference, take_rows
from ._trial import both_modes, Trial
from .violation import LawViolation


def slicing(trial: Trial) -> None:
    """Rows give the same whoever shares their batch, and whatever is in it."""
    never = jnp.zeros(trial.batch, jnp.bool_)
    state, x = trial.evolved, trial.steps[0].x
    whole = both_modes(trial.module, state, x, never)
    for description, rows in trial.subsets.items():
        part = both_modes(trial.module, *take_rows((state, x, never), rows))
        _expect_equal(
            f"does not treat {description} as it does within the whole batch",
            rows,
            take_rows(whole, rows),
            part,
        )
    for row in sorted({0, trial.batch // 2, trial.batch - 1}):
        kept = np.array([row])
        for description, replaced in _REPLACED.items():
            other_state, other_x = _replace_others((state, x), row, replaced)
            try:
                both = both_modes(trial.module, other_state, other_x, never)
                found = take_rows(both, kept)
            except Exception:
                # It is compiled, so it refuses these numbers, which is its right.
                continue
            _expect_equal(
                f"gives row {row} another result once the other rows of the input and "
                f"of the carry are {description}",
                kept,
                take_rows(whole, kept),
                found,
                # On a CPU, the same program gives an equal row equal bits.
                slack=0.0 if jax.default_backend() == "cpu" else 1.0,
            )


# Far from anything that a row has, in both directions, so that a faint trace of it
# and a threshold somewhere on the way show too.
_REPLACED: dict[str, Callable[[NDArray[Any]], Any]] = {
    "a thousand times larger": lambda x: 1e3 * (1 + abs(x)),
    "a thousand times larger and negative": lambda x: -1e3 * (1 + abs(x)),
    "NaN": lambda x: np.full_like(x, np.nan),
}


def _replace_others(
    tree: Any, row: int, replaced: Callable[[NDArray[Any]], Any]
) -> Any:
    """The tree with the floating-point numbers of all rows but one replaced."""

    def replace(leaf: Any) -> Any:
        if is_key(leaf) or not jnp.issubdtype(leaf.dtype, jnp.floating):
            return leaf
        values = np.asarray(leaf)
        others = replaced(values.astype(np.float64)).astype(leaf.dtype)
        others[row] = values[row]
        return jnp.asarray(others)

    return jtu.tree_map(replace, tree)


def _expect_equal(
    problem: str, rows: NDArray[Any], expected: Any, found: Any, slack: float = 1.0
) -> None:
    """Compares what rollout and replay give for some rows of the batch."""
    for mode, whole, part in zip(("rollout", "replay"), expected, found, strict=True):
        different = difference(whole, part, slack=slack)
        if different is not None:
            raise _violation(f"in the {mode}, the module {problem}", rows, different)


def _violation(problem: str, rows: NDArray[Any], found: Difference) -> LawViolation:
    return LawViolation(
        "slicing",
        f"{problem}: {found}",
        leaf=found.leaf,
        environment=int(rows[found.environment]),
        size=found.size,
        cause="a row looks at other rows or at how many there are: a mean over the "
        "batch axis, a reshape that mixes environments, or numbers drawn for the "
        "whole batch from one key, as in `jr.normal(key, x.shape)`, or numbers from "
        "numpy.random. Reduce over the last axes only, and draw with one key per row: "
        "`normals(draw, size)` or `jax.vmap(draw_one)(draw)`",
    )
