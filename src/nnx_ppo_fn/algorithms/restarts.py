"""Begins episodes anew where some have ended."""

import jax
import jax.numpy as jnp
import jax.tree_util as jtu
from jaxtyping import Array, Bool

from .._custom_types import Keys, PyTree
from .._keys import advance_keys
from .._tree import (
    anywhere,
    by_path,
    into_groups,
    out_of_groups,
    select,
    take,
    tree_map,
)
from ..envs import RLEnv
from .environments import reset_all


LEAST_AT_A_TIME = 16
"""A CPU resets no fewer environments at a time, if there are as many."""

MOST_ROUNDS = 16
"""A CPU resets all in no more rounds: of many, more are reset at a time."""


def restart(
    env: RLEnv, done: Bool[Array, " B"], keys: Keys, env_state: PyTree, n_shards: int
) -> tuple[Keys, PyTree]:
    """Fresh starts where an episode ended; nothing is paid while none does.

    Among many environments some episode ends at nearly every step, but only a few do.
    A CPU therefore resets a few at a time, until none is left. Other devices, which do
    many things at once, reset all where some episode ended, and keep what is needed.

    **Arguments:**

    - `env`: the environment.
    - `done`: whose episode ended.
    - `keys`: the environments' chains, which a fresh start takes one link further.
    - `env_state`: where the environments stand, leaves `[B, ...]`.
    - `n_shards`: groups of neighbouring environments, of which each is looked through
      by itself, so that no row is moved to another device.

    **Returns:**

    `(keys, env_state)`.

    **Raises:**

    `TypeError` where a fresh start has other types than the states it goes among.
    """
    in_shard = len(done) // n_shards
    size = in_shard if _is_placed(done) else _at_a_time(in_shard)

    def begin(keys: Keys) -> tuple[Keys, PyTree]:
        chain, starts = advance_keys(keys)
        fresh = reset_all(env, starts)
        _expect_same_types(fresh, env_state)
        return chain, fresh

    def all_of_them() -> tuple[Keys, PyTree]:
        return select(done, begin(keys), (keys, env_state))

    if size == in_shard:
        return jax.lax.cond(anywhere(done), all_of_them, lambda: (keys, env_state))

    def some(left: Array, keys: Keys, env_state: PyTree) -> tuple[Array, Keys, PyTree]:
        # Where fewer are left, the other rows are none, and nothing is set there.
        (rows,) = jnp.nonzero(left, size=size, fill_value=in_shard)
        fresh = begin(take(keys, rows, axis=0))
        return tree_map(
            lambda leaf, new: leaf.at[rows].set(new, mode="drop"),
            (left, keys, env_state),
            (jnp.zeros(size, jnp.bool_), *fresh),
        )

    _, keys, env_state = out_of_groups(
        jax.lax.while_loop(
            lambda loop: anywhere(loop[0]),
            lambda loop: jax.vmap(some)(*loop),
            into_groups((done, keys, env_state), n_shards),
        )
    )
    return keys, env_state


def _expect_same_types(fresh: PyTree, env_state: PyTree) -> None:
    """Raises `TypeError` for leaves that would be cast or stretched when they are set.

    What has another structure, JAX refuses by itself.
    """
    pairs = zip(
        by_path(fresh, "state").items(), jtu.tree_leaves(env_state), strict=False
    )
    for (path, new), old in pairs:
        kinds = [f"{leaf.dtype}{list(leaf.shape[1:])}" for leaf in (new, old)]
        if kinds[0] != kinds[1]:
            raise TypeError(
                f"{path} is {kinds[0]} after env.reset, but {kinds[1]} in the state of "
                "the environments; go on in the environment that the state is of"
            )


def _is_placed(flags: Bool[Array, " B"]) -> bool:
    """Whether types tell on which devices environments are, and rows cannot be picked.

    `ppo_step` leaves that to the compiler.
    """
    return bool(jax.typeof(flags).sharding.mesh.explicit_axes)


def _at_a_time(count: int) -> int:
    """How many of so many environments are reset together."""
    if jax.default_backend() != "cpu":
        return count
    return min(count, max(LEAST_AT_A_TIME, -(-count // MOST_ROUNDS)))
