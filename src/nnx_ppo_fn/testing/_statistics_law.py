"""The law of statistics."""

from collections.abc import Iterator
from typing import Any, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.tree_util as jtu
import numpy as np

from ..networks._routing import Container, named
from ..networks._trainable import partition_trainable
from ..networks.normalizer import Normalizer
from ..networks.types import AnyModule
from ._compare import Difference, difference, differing_bits, take_rows
from ._compile import compiled
from ._traces import signature
from ._trial import Trial
from .violation import LawViolation


def statistics(trial: Trial) -> None:
    """Statistics are what extras are for, and they add up."""
    module, extras = trial.module, trial.recorded.rollout_extras
    if not jtu.tree_leaves(extras):
        return
    _expect_same_structure(module, extras)
    at_once = _updated(module, extras)
    _expect_equal_bits(
        partition_trainable(module)[0],
        partition_trainable(at_once)[0],
        "update_statistics moves a parameter",
        "statistics sit among the parameters, where an optimiser and weight decay "
        "move them too. Wrap them in NonTrainable(...)",
    )
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
    different = difference(_arrays(at_once), _arrays(in_halves), slack=10.0)
    if different is not None:
        raise _violation(
            f"merging a rollout in two halves differs from merging it at once: "
            f"{different}",
            different,
            "statistics are averaged per call and not per sample, so they depend on "
            "how time is cut. Keep the number of samples, and merge means and sums of "
            "squares by it",
        )
    for before, after, inputs in _normalizers(module, at_once, extras):
        _expect_moments(before, after, inputs)


def _updated(module: AnyModule, extras: Any) -> AnyModule:
    """The module with its statistics brought up to date, compiled."""
    arrays, rest = eqx.partition(module, eqx.is_array)
    return eqx.combine(_update(arrays, rest, extras), rest)


@compiled
def _update(arrays: Any, rest: Any, extras: Any) -> Any:
    return _arrays(eqx.combine(arrays, rest).update_statistics(extras))


def _expect_same_structure(module: AnyModule, extras: Any) -> None:
    updated = eqx.filter_eval_shape(module.update_statistics, extras)
    cause = (
        "update_statistics builds another module. Replace the statistics alone, with "
        "equinox.tree_at, by arrays of the same shapes and dtypes"
    )
    if jtu.tree_structure(module) != jtu.tree_structure(updated):
        raise LawViolation(
            "statistics",
            f"update_statistics changes the module's structure, from "
            f"{jtu.tree_structure(module)} to {jtu.tree_structure(updated)}",
            cause=cause,
        )
    for (path, old), new in zip(
        jtu.tree_leaves_with_path(module), jtu.tree_leaves(updated), strict=True
    ):
        if eqx.is_array(old) and (old.shape, old.dtype) != (new.shape, new.dtype):
            raise LawViolation(
                "statistics",
                f"update_statistics turns {signature(old)} into {signature(new)}",
                leaf=jtu.keystr(path),
                cause=cause,
            )


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
    if isinstance(module, Container) and isinstance(updated, Container):
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
    samples = [
        np.asarray(leaf, np.float64).reshape(-1, *leaf.shape[2:])
        for leaf in jtu.tree_leaves(inputs)
    ]
    expected = {
        "mean": [jnp.asarray(s.mean(axis=0), jnp.float32) for s in samples],
        "std": [
            jnp.asarray(np.maximum(s.std(axis=0), 1e-3), jnp.float32) for s in samples
        ],
    }
    found = {"mean": jtu.tree_leaves(after.mean), "std": jtu.tree_leaves(after.std)}
    different = difference(expected, found)
    if different is not None:
        raise _violation(
            f"the Normalizer's moments differ from those of its inputs in float64: "
            f"{different}",
            different,
            "extras do not reach the normaliser as [T, B, ...], or reach another one",
        )


def _arrays(tree: Any) -> Any:
    return eqx.filter(tree, eqx.is_array)


def _violation(problem: str, found: Difference, cause: str) -> LawViolation:
    return LawViolation(
        "statistics", problem, cause=cause, leaf=found.leaf, size=found.size
    )
