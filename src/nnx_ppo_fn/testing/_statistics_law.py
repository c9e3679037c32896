"""The law of statistics."""

from collections.abc import Iterator
from typing import Any, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.tree_util as jtu
import numpy as np
from jaxtyping import Array
from numpy.typing import NDArray

from .._moments import Moments
from .._tree import is_key, merge_time
from ..networks._routing import named, Parent
from ..networks._trainable import partition_trainable
from ..networks.normalizer import Normalizer
from ..networks.types import AnyModule
from ._compare import Difference, difference, differing_bits, take_rows
from ._compile import unoptimised
from ._statistics_traces import structure_violations
from ._trial import Trial
from .violation import LawViolation


def statistics(trial: Trial) -> None:
    """Statistics are what extras are for, and they add up."""
    module, extras = trial.module, trial.recorded.rollout_extras
    for violation in structure_violations(module, extras):
        raise violation
    at_once = _updated(module, extras)
    _expect_equal_bits(
        partition_trainable(module)[0],
        partition_trainable(at_once)[0],
        "update_statistics moves a parameter",
        "statistics sit among the parameters, where an optimiser and weight decay "
        "move them too. Wrap them in NonTrainable(...)",
    )
    if not jtu.tree_leaves(extras):
        return
    _expect_equal_bits(
        module,
        _updated(module, take_rows(extras, slice(0))),
        "an empty rollout (T = 0) changes the statistics",
        "a mean over no samples is NaN, or a count moves per call instead of per "
        "sample. Weigh what comes in by how many samples there are",
    )
    half = trial.length // 2
    first = _updated(module, take_rows(extras, slice(half)))
    in_halves = _updated(first, take_rows(extras, slice(half, None)))
    _expect_same_statistics(
        at_once,
        in_halves,
        "merging a rollout in two halves differs from merging it at once",
        "statistics are averaged per call and not per sample, so they depend on how "
        "time is cut. Keep the number of samples, and merge means and sums of squares "
        "by it",
    )
    _expect_left_out_steps(trial, extras, first, half)
    for before, after, inputs in _normalizers(module, at_once, extras):
        _expect_moments(before, after, inputs)


def _expect_left_out_steps(
    trial: Trial, extras: Any, first: AnyModule, half: int
) -> None:
    """What training leaves out is NaN: whole steps, or single rows of a step."""
    shape = (trial.length, trial.batch)
    later = np.broadcast_to(np.arange(trial.length)[:, None] >= half, shape)
    cause = (
        "update_statistics counts steps that are left out, in which every number is "
        "NaN (integers arrive as float32 then). Let only finite numbers be samples: "
        "`seen = jnp.isfinite(rows)`, then `jnp.where(seen, rows, 0)` and "
        "`jnp.sum(seen, axis=0)`"
    )
    _expect_same_statistics(
        first,
        _updated(trial.module, _left_out(extras, later)),
        "steps that are left out (NaN) move the statistics",
        cause,
    )
    scattered = trial.random("left out").random(shape) < 0.3
    scattered[0, 0] = True
    updated = _arrays(_updated(trial.module, _left_out(extras, scattered)))
    for path, leaf in jtu.tree_leaves_with_path(updated):
        if eqx.is_inexact_array(leaf) and np.any(np.isnan(np.asarray(leaf))):
            raise LawViolation(
                "statistics",
                "rows that are left out (NaN) of some steps make the statistics NaN",
                leaf=jtu.keystr(path),
                cause=cause,
            )


def _left_out(extras: Any, rows: NDArray[Any]) -> Any:
    """Extras `[T, B, ...]` as training gives them where rows are left out."""

    def leave_out(leaf: Any) -> Any:
        if is_key(leaf):
            return leaf
        inexact = jnp.issubdtype(leaf.dtype, jnp.inexact)
        values = np.array(leaf, leaf.dtype if inexact else np.float32)
        values[rows] = np.nan
        return jnp.asarray(values)

    return jtu.tree_map(leave_out, extras)


def _expect_same_statistics(
    expected: AnyModule, found: AnyModule, problem: str, cause: str
) -> None:
    different = difference(_comparable(expected), _comparable(found), slack=10.0)
    if different is not None:
        raise _violation(f"{problem}: {different}", different, cause)


def _comparable(module: AnyModule) -> Any:
    """The module's arrays, with means as one number.

    How a mean is shared out between its two parts depends on the order of sums.
    """

    def whole(node: Any) -> Any:
        if not isinstance(node, Moments):
            return node
        mean = np.asarray(node.mean, np.float64) + np.asarray(node.mean_residual)
        return eqx.tree_at(
            lambda moments: (moments.mean, moments.mean_residual),
            node,
            (jnp.asarray(mean, jnp.float32), jnp.zeros_like(node.mean)),
        )

    return jtu.tree_map(
        whole, _arrays(module), is_leaf=lambda node: isinstance(node, Moments)
    )


def _updated(module: AnyModule, extras: Any) -> AnyModule:
    """The module with its statistics brought up to date, compiled."""
    arrays, rest = eqx.partition(module, eqx.is_array)
    return eqx.combine(_update(arrays, rest, extras), rest)


@unoptimised
def _update(arrays: Any, rest: Any, extras: Any) -> Any:
    return _arrays(eqx.combine(arrays, rest).update_statistics(extras))


def _expect_equal_bits(expected: Any, found: Any, problem: str, cause: str) -> None:
    different = differing_bits(_arrays(expected), _arrays(found))
    if different is not None:
        raise _violation(f"{problem}: {different}", different, cause)


def _normalizers(
    module: AnyModule, updated: AnyModule, extras: Any
) -> Iterator[tuple[Normalizer, Normalizer, Any]]:
    """Every normaliser before and after, with the inputs that it recorded."""
    if isinstance(module, Normalizer) and isinstance(updated, Normalizer):
        yield module, updated, extras
    if isinstance(module, Parent) and isinstance(updated, Parent):
        after = named(updated.children())
        for name, child in named(module.children()).items():
            yield from _normalizers(child, after[name], extras[name])


def _expect_moments(before: Normalizer, after: Normalizer, inputs: Any) -> None:
    shapes = jtu.tree_map(
        lambda mean: jax.ShapeDtypeStruct(mean.shape, mean.dtype), before.mean
    )
    fresh = Normalizer(shapes)
    if (
        differing_bits(_arrays(before.statistics), _arrays(fresh.statistics))
        is not None
    ):
        # One that has seen samples already: another, without a past, stands in for it.
        after = cast(Normalizer, _updated(fresh, inputs))
    mean, std = zip(*map(_moments_of, jtu.tree_leaves(inputs)), strict=True)
    expected = {"mean": list(mean), "std": list(std)}
    found = {"mean": jtu.tree_leaves(after.mean), "std": jtu.tree_leaves(after.std)}
    different = difference(expected, found)
    if different is not None:
        raise _violation(
            f"the Normalizer's moments differ from those of its inputs in float64: "
            f"{different}",
            different,
            "extras do not reach the normaliser as [T, B, ...], or reach another one",
        )


def _moments_of(inputs: Any) -> tuple[Array, Array]:
    """Mean and standard deviation of inputs `[T, B, ...]`, in float64."""
    samples = np.asarray(merge_time(inputs), np.float64)
    seen = np.isfinite(samples)
    count = np.maximum(np.sum(seen, axis=0), 1)
    mean = np.sum(np.where(seen, samples, 0.0), axis=0) / count
    off = np.where(seen, np.where(seen, samples, 0.0) - mean, 0.0)
    std = np.maximum(np.sqrt(np.sum(np.square(off), axis=0) / count), 1e-3)
    # Before its first sample, a feature has the standard deviation 10.
    std = np.where(np.any(seen, axis=0), std, 10.0)
    return jnp.asarray(mean, jnp.float32), jnp.asarray(std, jnp.float32)


def _arrays(tree: Any) -> Any:
    return eqx.filter(tree, eqx.is_array)


def _violation(problem: str, found: Difference, cause: str) -> LawViolation:
    return LawViolation(
        "statistics", problem, cause=cause, leaf=found.leaf, size=found.size
    )
