"""Standardises observations with running statistics."""

import operator
from collections.abc import Sequence
from typing import Any, cast, final, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.tree_util as jtu
import numpy as np
from jaxtyping import Array, Shaped

from .._moments import Moments
from .._tree import by_path, canonical, in_dtype_of, is_key
from ._errors import CompositionError, expect_like
from ._trainable import Coefficient, coefficient, NonTrainable, number
from .types import output, StatefulModuleOutput, StatelessModule


_INITIAL_STD = 10.0
_SMALLEST_STD = 1e-3

Self = TypeVar("Self", bound="Normalizer")


@final
class Normalizer(StatelessModule[Any, Any]):
    """`(x - mean) / std`, feature by feature, over a tree of any shape.

    The statistics change in `update_statistics` and nowhere else, so a rollout and its
    replay see the same ones. The input travels there as rollout extras.

    `std` is the population standard deviation, at least 1e-3, and 10 for a feature
    that has no samples yet. NaN and infinities are not samples, whatever else the step
    holds; in the output NaN stays NaN, so that a fault is seen, and infinities stay
    too unless there is a `clip`. Integers and booleans become `float32`, and
    statistics are `float32` whatever the input; other floats keep their dtype.

    Mappings of any kind count as a `dict`, and come out as one.
    """

    statistics: NonTrainable[Any]
    clip: Coefficient | None

    def __init__(self, shape: Any, *, clip: float | Array | None = None):
        """**Arguments:**

        - `shape`: of one environment's observation: an integer, a tuple of integers,
          or a tree of those or of `jax.ShapeDtypeStruct`s. `Normalizer.like` takes an
          observation instead.
        - `clip`: if given, outputs are limited to `-clip ... clip`.

        **Raises:**

        `ValueError` for what is not a shape.
        """
        statistics = jtu.tree_map(
            lambda leaf: Moments.zero(_as_shape(leaf)),
            canonical(shape),
            is_leaf=_is_shape,
        )
        if not jtu.tree_leaves(statistics):
            raise ValueError(f"Normalizer expects at least one shape, got {shape!r}")
        self.statistics = NonTrainable(statistics)
        self.clip = None if clip is None else coefficient(clip, name="clip")

    @staticmethod
    def like(observation: Any, *, clip: float | Array | None = None) -> "Normalizer":
        """A normaliser for observations such as this one.

        **Arguments:**

        - `observation`: one environment's observation, without a batch axis: a tree
          of arrays, numbers or `jax.ShapeDtypeStruct`s.
        - `clip`: as in `Normalizer(shape)`.
        """
        statistics = jtu.tree_map(
            lambda leaf: Moments.zero(np.shape(leaf)), canonical(observation)
        )
        if not jtu.tree_leaves(statistics):
            raise ValueError(
                f"Normalizer.like expects at least one array, got {observation!r}"
            )
        return eqx.tree_at(
            lambda normalizer: normalizer.statistics.value,
            Normalizer((), clip=clip),
            statistics,
        )

    @property
    def mean(self) -> Any:
        """The mean of every feature, a tree shaped as one observation."""
        return self._map(lambda moments: moments.mean + moments.mean_residual)

    @property
    def std(self) -> Any:
        """What the input is divided by, a tree shaped as one observation."""
        return self._map(_std)

    def __call__(
        self, state: tuple[()], x: Any, rollout_extras: Any = None
    ) -> StatefulModuleOutput[tuple[()], Any]:
        """Standardises `x`, leaves `[B, *shape]`."""
        x = canonical(x)
        pairs = self._with_moments(x, "x", "B").values()
        return output(
            jtu.tree_unflatten(
                jtu.tree_structure(x),
                [self._standardise(leaf, moments) for leaf, moments in pairs],
            ),
            batch=len(jtu.tree_leaves(x)[0]),
            rollout_extras=x if rollout_extras is None else rollout_extras,
        )

    def update_statistics(self: Self, rollout_extras: Any) -> Self:
        """The normaliser with a rollout's inputs, leaves `[T, B, *shape]`, merged in.

        Every entry that is finite is a sample of its feature.
        """
        name = "rollout_extras"
        pairs = self._with_moments(canonical(rollout_extras), name, "T, B")

        def merged(path: Any, moments: Moments) -> Moments:
            leaf, _ = pairs[name + jtu.keystr(path)]
            return moments.merge(_wide(leaf))

        return eqx.tree_at(
            lambda normalizer: normalizer.statistics.value,
            self,
            jtu.tree_map_with_path(merged, self.statistics.value, is_leaf=_is_moments),
        )

    def _standardise(self, x: Shaped[Array, "..."], moments: Moments) -> Array:
        centred = (_wide(x) - moments.mean[None]) - moments.mean_residual[None]
        standardised = centred / _std(moments)[None]
        if self.clip is not None:
            clip = number(self.clip, "clip")
            standardised = jnp.clip(standardised, -clip, clip)
        return in_dtype_of(x, standardised)

    def _map(self, function: Any) -> Any:
        return jtu.tree_map(function, self.statistics.value, is_leaf=_is_moments)

    def _with_moments(
        self, x: Any, name: str, axes: str
    ) -> dict[str, tuple[Array, Moments]]:
        """The leaves of `x` in their order, by path, each with its own statistics.

        **Raises:**

        `CompositionError` that names what does not fit.
        """
        moments = by_path(self.statistics.value, name, is_leaf=_is_moments)
        shapes = {path: (each.mean.shape, None) for path, each in moments.items()}
        leaves = expect_like(x, shapes, name=name, axes=axes)
        for path, leaf in leaves.items():
            if is_key(leaf) or jnp.issubdtype(leaf.dtype, jnp.complexfloating):
                raise CompositionError(
                    f"expected real numbers in {path}, got {leaf.dtype}"
                )
        return {path: (leaf, moments[path]) for path, leaf in leaves.items()}


def _std(moments: Moments) -> Array:
    std = jnp.maximum(moments.deviation, _SMALLEST_STD)
    return jnp.where(moments.count.is_zero(), _INITIAL_STD, std)


def _wide(x: Shaped[Array, "..."]) -> Array:
    return x.astype(jnp.float32)


def _is_moments(node: Any) -> bool:
    return isinstance(node, Moments)


def _is_size(node: Any) -> bool:
    return isinstance(node, (int, np.integer)) and not isinstance(node, bool)


def _is_shape(node: Any) -> bool:
    if type(node) in (tuple, list):
        return all(map(_is_size, cast(Sequence[Any], node)))
    return _is_size(node)


def _as_shape(leaf: Any) -> tuple[int, ...]:
    if isinstance(leaf, jax.ShapeDtypeStruct):
        return leaf.shape
    if not _is_shape(leaf):
        raise ValueError(
            "Normalizer expects a shape: an integer, a tuple of integers, or a tree of "
            f"those or of jax.ShapeDtypeStruct, got {type(leaf).__name__}. "
            "Normalizer.like(observation) takes an observation"
        )
    sizes = cast(Sequence[int], leaf) if isinstance(leaf, (tuple, list)) else [leaf]
    shape = tuple(operator.index(size) for size in sizes)
    if any(size < 0 for size in shape):
        raise ValueError(f"Normalizer expects sizes of at least 0, got {shape}")
    return shape
