"""Running mean and standard deviation of features, sample by sample but in batches."""

from typing import final

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from ._counter import Counter
from ._tree import tree_map


@final
class Moments(eqx.Module):
    """Mean and population standard deviation of what was seen so far, per feature.

    All fields have the shape of the features:

    - `count`: how many samples each feature had, exactly.
    - `mean`, `mean_residual`: their sum is the mean. The residual holds what does not
      fit into a `float32`, so that small steps far from 0 are not lost.
    - `deviation`: the standard deviation, 0 for a constant feature. It is kept rather
      than a sum of squares, which grows and overflows.
    """

    count: Counter
    mean: Float[Array, "*shape"]
    mean_residual: Float[Array, "*shape"]
    deviation: Float[Array, "*shape"]

    @staticmethod
    def zero(shape: tuple[int, ...]) -> "Moments":
        """No samples yet.

        **Arguments:**

        - `shape`: of the features.
        """
        zeros = jnp.zeros(shape, jnp.float32)
        return Moments(Counter.zero(shape), zeros, zeros, zeros)

    def merge(self, samples: Float[Array, "*samples_and_shape"]) -> "Moments":
        """The moments of all samples, old and new.

        Entries that are not finite are not samples; each feature counts its own.

        The batch's moments are taken around the middle of its range and then once more
        around the mean that was found, and joined to the old ones by the pairwise
        update of Chan, Golub & LeVeque (1983). Everything is computed in units of a
        power of two near the largest magnitude, so no square overflows.

        **Arguments:**

        - `samples`: `float32`, `[..., *shape]`. However many axes they have are summed
          over as they are: what lies on several devices stays there.
        """
        axes = tuple(range(samples.ndim - self.mean.ndim))

        def each(leaf: Array) -> Array:
            return jnp.expand_dims(leaf, axes)

        valid = jnp.isfinite(samples)
        count = jnp.sum(valid, axis=axes, dtype=jnp.uint32)
        new_count = count.astype(jnp.float32)
        old_count = self.count.as_float()
        weight = new_count / jnp.maximum(old_count + new_count, 1)
        old_weight = old_count / jnp.maximum(old_count + new_count, 1)

        lowest = jnp.min(samples, axis=axes, initial=jnp.inf, where=valid)
        highest = jnp.max(samples, axis=axes, initial=-jnp.inf, where=valid)
        lowest, highest = (
            jnp.where(count > 0, bound, self.mean) for bound in (lowest, highest)
        )
        unit = _power_of_two_below(
            jnp.maximum(jnp.abs(lowest), jnp.abs(highest)),
            jnp.maximum(jnp.abs(self.mean), self.deviation),
        )

        middle = lowest / unit / 2 + highest / unit / 2
        distance = jnp.where(valid, samples / each(unit) - each(middle), 0)
        offset = jnp.sum(distance, axis=axes) / jnp.maximum(new_count, 1)
        distance = jnp.where(valid, distance - each(offset), 0)
        correction = jnp.sum(distance, axis=axes) / jnp.maximum(new_count, 1)
        variance = jnp.sum(distance**2, axis=axes) / jnp.maximum(new_count, 1)
        variance = jnp.maximum(variance - correction**2, 0)

        old_mean, old_residual = self.mean / unit, self.mean_residual / unit
        step, lost = _exact_sum(middle, -old_mean)
        small_step = lost + (offset + correction - old_residual)
        mean, lost = _exact_sum(old_mean, weight * step)
        mean, residual = _exact_sum(mean, old_residual + weight * small_step + lost)
        variance = (
            old_weight * (self.deviation / unit) ** 2
            + weight * variance
            + old_weight * weight * (step + small_step) ** 2
        )
        merged = Moments(
            self.count.add(count),
            mean * unit,
            residual * unit,
            jnp.sqrt(variance) * unit,
        )
        return tree_map(lambda new, old: jnp.where(count > 0, new, old), merged, self)


def _exact_sum(
    a: Float[Array, "*shape"], b: Float[Array, "*shape"]
) -> tuple[Float[Array, "*shape"], Float[Array, "*shape"]]:
    """`a + b` as a rounded sum and what the rounding lost (Knuth's two-sum)."""
    total = a + b
    b_part = total - a
    return total, (a - (total - b_part)) + (b - b_part)


def _power_of_two_below(
    *magnitudes: Float[Array, "*shape"],
) -> Float[Array, "*shape"]:
    """The largest power of two up to the largest magnitude, from 1 to `2**126`.

    Scaling by it is exact, and its reciprocal, by which XLA may multiply instead of
    dividing, is not so small that it counts as 0.
    """
    largest = jnp.ones_like(magnitudes[0])
    for magnitude in magnitudes:
        largest = jnp.maximum(largest, magnitude)
    _, exponent = jnp.frexp(largest)
    return jnp.ldexp(jnp.ones_like(largest), jnp.minimum(exponent - 1, 126))
