"""Chains of random keys, one key per environment.

`jax.random.fold_in(k, i)` and `jax.random.split(k)[i]` are the same key bit for bit,
and so are `split(k, 2)` and `split(k, 3)[:2]`. Numbering children therefore makes
accidental twins. Here every child has a *name*, hashed to a tag of at least `2**31`,
which no `split` of a practical size reaches.
"""

from collections.abc import Callable
from typing import Any, final
from zlib import crc32

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Key

from ._custom_types import Keys
from ._threefry import written_out
from ._tree import is_key


def expect_key(key: Any) -> None:
    """Raises `TypeError` unless `key` is one typed random key."""
    if is_key(key) and key.shape == ():
        return
    raise TypeError(f"expected one typed key, jax.random.key(seed), got {_kind(key)}")


def expect_keys(keys: Any) -> None:
    """Raises `TypeError` unless `keys` are typed random keys, `[B]`."""
    if is_key(keys) and keys.ndim == 1:
        return
    raise TypeError(
        "expected one typed key for each environment, jax.random.split(key, B), got "
        f"{_kind(keys)}"
    )


def _kind(given: Any) -> str:
    dtype, shape = getattr(given, "dtype", None), getattr(given, "shape", None)
    return type(given).__name__ if dtype is None else f"{dtype}{list(shape or ())}"


def derive(keys: Key[Array, "*batch"], name: str) -> Key[Array, "*batch"]:
    """The child called `name` of every key.

    Deriving the same child twice gives the same key; children of different names
    are independent. A key that children are derived from must not be drawn from.

    **Arguments:**

    - `keys`: keys of any shape, each of which gets a child of its own.
    - `name`: what the child is for.

    **Returns:**

    Keys of the same shape.

    **Raises:**

    `TypeError` unless they are typed keys.
    """
    if not is_key(keys):
        raise TypeError(f"expected typed keys, jax.random.key(seed), got {_kind(keys)}")
    tag = jnp.uint32(crc32(name.encode()) | 0x8000_0000)
    fold = jr.fold_in
    for _ in range(keys.ndim):
        fold = jax.vmap(fold, in_axes=(0, None))
    return written_out(lambda keys: fold(keys, tag), keys)


def one_per_environment(key: Key[Array, ""], count: int) -> Keys:
    """A key for each of `count` environments.

    The key of environment `i` does not depend on how many there are.

    **Arguments:**

    - `key`: spent by this call.
    - `count`: how many environments.

    **Returns:**

    Keys `[count]`.
    """
    return jax.vmap(jr.fold_in, in_axes=(None, 0))(key, jnp.arange(count))


def advance_keys(
    chain: Key[Array, "*batch"],
) -> tuple[Key[Array, "*batch"], Key[Array, "*batch"]]:
    """One step of a chain of keys.

    **Arguments:**

    - `chain`: one key per environment; spent by this call.

    **Returns:**

    `(next_chain, draw)`: the chain's next link, and a key to draw from once.

    **Example:**

    ```python
    next_state, draw = advance_keys(state)
    noise = normals(draw, 3)
    ```
    """
    return derive(chain, "next link"), derive(chain, "draw")


def normals(draw: Keys, size: int) -> Float[Array, "B {size}"]:
    """Standard normal numbers, drawn for each environment from its own key.

    One draw of shape `[B, size]` from a single key would depend on how many
    environments share the batch; this does not.

    **Arguments:**

    - `draw`: one key per environment, consumed.
    - `size`: how many numbers an environment gets.

    **Returns:**

    `float32` numbers of shape `[B, size]`.
    """
    return drawn(jr.normal, draw, (size,))


def drawn(
    sampler: Callable[[Any, tuple[int, ...], Any], Array],
    keys: Keys,
    shape: tuple[int, ...],
) -> Float[Array, "B ..."]:
    """Random numbers, drawn for each environment from its own key.

    **Arguments:**

    - `sampler`: of `jax.random`, called with a key, a shape and a dtype.
    - `keys`: one per environment, consumed.
    - `shape`: of the numbers of one environment.

    **Returns:**

    `float32` numbers `[B, *shape]`.
    """
    return jax.vmap(lambda key: sampler(key, shape, jnp.float32))(keys)


@final
class Held(eqx.Module):
    """A key in a carry that is drawn from, unchanged, until the next reset.

    The laws forbid drawing twice from a plain key. This marks the exception, such as
    a dropout mask that holds for an episode: `key` has shape `[B]`, keeps its bits
    from step to step, and a reset replaces it.
    """

    key: Keys


@final
class EpisodeKeys(eqx.Module):
    """A carry for randomness that is drawn anew in every episode.

    `chain` outlives the episode; `held` is this episode's key.
    """

    chain: Keys
    held: Held

    @staticmethod
    def of(chain: Keys) -> "EpisodeKeys":
        """Starts an episode: advances `chain` (`[B]`) and holds the key it gives."""
        next_chain, draw = advance_keys(chain)
        return EpisodeKeys(next_chain, Held(draw))
