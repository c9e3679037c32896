"""Attention to the last steps of an episode."""

import functools as ft
import math
from typing import Any, final

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import jax.tree_util as jtu
from jaxtyping import Array, Bool, Float, Int, Key, Shaped

from .._custom_types import Keys
from .._expect import as_count
from .._keys import expect_keys
from .._tree import in_dtype_of, merge_time, select, split_time, tree_map
from ._errors import expect_features, expect_rows_of
from ._products import affine, product
from ._ring_buffer import episode_begins, RingBuffer
from .feedforward import Initializer
from .types import output, StatefulModuleOutput, UnrolledModule


@final
class AttentionState(eqx.Module):
    """What a `WindowedAttention` remembers.

    - `memory`: the keys and the values of the last `window` steps, each
      `[B, window, heads, head_features]` in `float32`.
    - `count`: how many of them are of this episode, `[B]`.
    """

    memory: RingBuffer
    count: Int[Array, " B"]


@final
class WindowedAttention(
    UnrolledModule[AttentionState, Float[Array, "B in"], Float[Array, "B out"]]
):
    """Self-attention to the last `window` steps of an episode, the present included.

    ```
    q, k, v = split(x @ kernel + bias, 3), each split into heads
    score[j] = dot(q, k[j steps ago]) / sqrt(head_features) + distance_bias[head, j]
    seen = sum over j of softmax(score)[j] * v[j steps ago]
    y = join(seen) @ output_kernel + x @ skip_kernel + output_bias
    ```

    Each head has a learned bias for each distance (Raffel et al. 2020, arXiv
    1910.10683, here without their buckets), which starts as in ALiBi (Press et al.
    2022, arXiv 2108.12409): recent steps weigh more, in each head at a pace of its own.
    A distance is all that is known of time, so a step means the same wherever in an
    episode it stands. The skip is a transformer's residual connection, for inputs that
    are not as wide as the output.

    The carry is an `AttentionState`, a ring buffer of keys and values to which a step
    attends. An unroll of `T` steps cuts time into blocks of `window` steps, and each
    block attends to itself and to the one before it: the scores are
    `[B, heads, T, 2 * window]`, never `[T, T]` where `T` is larger than `window`.
    """

    kernel: Float[Array, "in_features three_inner"]
    bias: Float[Array, " three_inner"]
    distance_bias: Float[Array, "heads window"]
    output_kernel: Float[Array, "inner hidden_features"]
    skip_kernel: Float[Array, "in_features hidden_features"]
    output_bias: Float[Array, " hidden_features"]
    in_features: int = eqx.field(static=True)
    hidden_features: int = eqx.field(static=True)
    window: int = eqx.field(static=True)
    heads: int = eqx.field(static=True)
    head_features: int = eqx.field(static=True)

    def __init__(
        self,
        in_features: int,
        hidden_features: int,
        *,
        key: Key[Array, ""],
        window: int = 16,
        heads: int = 4,
        head_features: int | None = None,
        kernel_init: Initializer = jax.nn.initializers.lecun_normal(),
    ):
        """**Arguments:**

        - `in_features`, `hidden_features`: sizes of the input and of the output.
        - `key`: for the initial weights.
        - `window`: how many steps are attended to, the present one included.
        - `heads`: how many patterns of attention there are side by side.
        - `head_features`: size of the keys and of the values of each;
          `hidden_features / heads` by default, rounded up.
        - `kernel_init`: a `jax.nn.initializers` for all weights; biases start at 0.

        **Raises:**

        `TypeError` for a size that is no integer, and `ValueError` for one below 1.
        """
        self.in_features = as_count(in_features, name="in_features")
        self.hidden_features = as_count(hidden_features, name="hidden_features")
        self.window = as_count(window, name="window")
        self.heads = as_count(heads, name="heads")
        if head_features is None:
            head_features = -(-self.hidden_features // self.heads)
        self.head_features = as_count(head_features, name="head_features")
        inner = self.heads * self.head_features
        into, out, skip = jr.split(key, 3)
        self.kernel = kernel_init(into, (self.in_features, 3 * inner), jnp.float32)
        self.bias = jnp.zeros(3 * inner, jnp.float32)
        shape = (inner, self.hidden_features)
        self.output_kernel = kernel_init(out, shape, jnp.float32)
        shape = (self.in_features, self.hidden_features)
        self.skip_kernel = kernel_init(skip, shape, jnp.float32)
        self.output_bias = jnp.zeros(self.hidden_features, jnp.float32)
        share = jnp.arange(1, self.heads + 1, dtype=jnp.float32) / self.heads
        pace = 2 ** (-8 * share)
        distances = jnp.arange(self.window, dtype=jnp.float32)
        self.distance_bias = -pace[:, None] * distances[None]

    def initialize_state(self, keys: Keys) -> AttentionState:
        """Nothing to attend to; the keys are not used."""
        expect_keys(keys)
        return self._fresh(len(keys))

    def reset_state(self, state: AttentionState) -> AttentionState:
        """Nothing to attend to, whatever the old carry."""
        return self._fresh(len(state.count))

    def __call__(
        self,
        state: AttentionState,
        x: Float[Array, "B features"],
        rollout_extras: Any = None,
    ) -> StatefulModuleOutput[AttentionState, Float[Array, "B out"]]:
        """One step on `x`, `[B, in_features]`; the output has its floating dtype."""
        expect_features(x, self.in_features)
        expect_rows_of(state, x)
        query, entry = self._projected(x)
        memory = state.memory.write(entry)
        count = jnp.minimum(state.count + 1, self.window)
        slots = jnp.arange(self.window, dtype=jnp.int32)[None]
        distance = (memory.index[:, None] - 1 - slots) % self.window
        seen = _attended(
            query[:, None],
            memory.buffer,
            jnp.moveaxis(self._bias(distance), 0, 1)[:, :, None],
            (distance < count[:, None])[:, None],
        )
        return output(
            self._joined(seen[:, 0], x),
            batch=len(x),
            next_state=AttentionState(memory, count),
            rollout_extras=rollout_extras,
        )

    def unroll(
        self,
        state: AttentionState,
        xs: Float[Array, "T B features"],
        is_first: Bool[Array, "T B"],
        rollout_extras: Any = None,
    ) -> StatefulModuleOutput[AttentionState, Float[Array, "T B out"]]:
        """All steps at once, block by block."""
        expect_features(xs, self.in_features, name="xs", axes="T, B")
        expect_rows_of(state, xs, name="xs", axes="T, B")
        shape = xs.shape[:2]
        length, window = shape[0], self.window
        x = merge_time(xs)
        query, entries = split_time(self._projected(x), shape)
        begins = episode_begins(is_first)
        times = jnp.arange(length, dtype=jnp.int32)[:, None]
        # How many steps of its episode there have been, at each step.
        counts = jnp.where(begins < 0, state.count[None] + times, times - begins) + 1

        fresh = self._fresh(shape[1])
        starts = jnp.any(is_first[:1], axis=0)
        past = select(starts, fresh.memory, state.memory).past()
        size = max(min(window, length), 1)
        filled = max(-(-length // size), 1) * size
        everything = tree_map(
            lambda old, new: jnp.concatenate([old, _padded(new, filled)]), past, entries
        )
        asking = jnp.arange(size, dtype=jnp.int32)[:, None]
        asked = jnp.arange(window + size, dtype=jnp.int32)[None]
        distance = window + asking - asked
        near = (distance >= 0) & (distance < window)
        recent = distance[None, None] < _cut(_padded(counts, filled), size)[..., None]
        query, is_sound = _sound(_padded(query, filled))
        query, asking_is_sound = (_cut(leaf, size) for leaf in (query, is_sound))
        memory, asked_is_sound = tree_map(
            lambda leaf: _overlapping(leaf, window, size), _sound(everything)
        )
        asking_is_sound = jnp.moveaxis(asking_is_sound, -1, -2)[..., :, None]
        asked_is_sound = jnp.moveaxis(asked_is_sound, -1, -2)[..., None, :]
        bias = self._bias(distance)[None, None]
        seen = _attended(
            query,
            memory,
            jnp.where(asking_is_sound & asked_is_sound, bias, jnp.nan),
            near[None, None] & recent,
        )
        seen = jnp.moveaxis(seen, 2, 1)
        seen = seen.reshape((filled, *entries["key"].shape[1:]))[:length]
        value = self._joined(merge_time(seen), x)
        # A derivative of such a row would be NaN and pass through a weight of 0.
        is_finite = jnp.all(jnp.isfinite(value), axis=-1)
        value = select(is_finite, value, jax.lax.stop_gradient(value))
        count = jnp.minimum(jnp.concatenate([state.count[None], counts])[-1], window)
        return StatefulModuleOutput(
            AttentionState(state.memory.after(entries, begins, fresh.memory), count),
            split_time(value, shape),
            jnp.zeros(shape, jnp.float32),
            {},
            rollout_extras,
        )

    def _fresh(self, batch: int) -> AttentionState:
        shape = (batch, self.window, self.heads, self.head_features)
        nothing = {name: jnp.zeros(shape, jnp.float32) for name in ("key", "value")}
        return AttentionState(RingBuffer.filled(nothing), jnp.zeros(batch, jnp.int32))

    def _bias(self, distance: Int[Array, "..."]) -> Float[Array, "heads ..."]:
        """On the scores, at distances; those out of the window do not matter."""
        bias = self.distance_bias.astype(jnp.float32)
        return bias[:, jnp.clip(distance, 0, self.window - 1)]

    def _projected(
        self, x: Float[Array, "B in"]
    ) -> tuple[Float[Array, "B heads size"], dict[str, Float[Array, "B heads size"]]]:
        """The query, and what is remembered."""
        shape = (len(x), 3, self.heads, self.head_features)
        parts = affine(x, self.kernel, self.bias).reshape(shape)
        return parts[:, 0], {"key": parts[:, 1], "value": parts[:, 2]}

    def _joined(
        self, seen: Float[Array, "B heads size"], x: Float[Array, "B in"]
    ) -> Float[Array, "B out"]:
        """The output, from what the heads have seen and from the input."""
        heads = seen.reshape((len(x), self.heads * self.head_features))
        value = affine(heads, self.output_kernel, self.output_bias)
        return in_dtype_of(x, value + product(x, self.skip_kernel))


def _attended(
    query: Float[Array, "*rows asking heads size"],
    memory: dict[str, Float[Array, "*rows asked heads size"]],
    bias: Float[Array, "*#rows heads #asking asked"],
    seen: Bool[Array, "*rows asking asked"],
) -> Float[Array, "*rows asking heads size"]:
    """Scaled dot-product attention; NaN for who sees what is not finite.

    All arrays but `bias` must be finite where they are not seen: they are multiplied
    by weights of 0.

    **Arguments:**

    - `query`: of the steps that ask.
    - `memory`: `"key"` and `"value"` of the steps that are asked.
    - `bias`: on the scores.
    - `seen`: who attends to whom.
    """
    score = jnp.einsum("...qhd,...shd->...hqs", query, memory["key"])
    score = score / math.sqrt(query.shape[-1]) + bias
    score = jnp.where(jnp.isfinite(score), score, jnp.nan)
    seen, lowest = seen[..., None, :, :], jnp.finfo(score.dtype).min
    weights = jax.nn.softmax(jnp.where(seen, score, lowest))
    # Their derivatives may be infinite where nothing is seen, and those are not used.
    weights = jnp.where(seen, weights, 0)
    return jnp.einsum("...hqs,...shd->...qhd", weights, memory["value"])


def _sound(vectors: Any) -> tuple[Any, Bool[Array, "steps B heads"]]:
    """Keeps numbers that are not finite from those who do not attend to them.

    They would pass through a weight of 0, and so would a derivative that they have
    made NaN.

    **Arguments:**

    - `vectors`: a tree of arrays `[steps, B, heads, size]`.

    **Returns:**

    `(vectors, is_sound)`: with zeros in the place of what is not sound, which is where
    all numbers of all vectors are finite.
    """
    finite = [jnp.all(jnp.isfinite(leaf), -1) for leaf in jtu.tree_leaves(vectors)]
    is_sound = ft.reduce(jnp.logical_and, finite)
    nothing = tree_map(jnp.zeros_like, vectors)
    return select(is_sound, vectors, nothing), is_sound


def _padded(leaf: Shaped[Array, "steps ..."], length: int) -> Array:
    """With zeros after the last step."""
    missing = [(0, length - len(leaf))] + [(0, 0)] * (leaf.ndim - 1)
    return jnp.pad(leaf, missing)


def _cut(
    leaf: Shaped[Array, "steps B ..."], size: int
) -> Shaped[Array, "blocks B size ..."]:
    """Time in blocks of `size` steps."""
    blocks = leaf.reshape((len(leaf) // size, size, *leaf.shape[1:]))
    return jnp.moveaxis(blocks, 2, 1)


def _overlapping(
    leaf: Shaped[Array, "steps B ..."], window: int, size: int
) -> Shaped[Array, "blocks B window_and_size ..."]:
    """Each block of `size` steps, with the `window` steps before it in front.

    There are several blocks only where they are as long as the window.
    """
    if size < window:
        return jnp.moveaxis(leaf, 1, 0)[None]
    blocks = _cut(leaf, size)
    return jnp.concatenate([blocks[:-1], blocks[1:]], axis=2)
