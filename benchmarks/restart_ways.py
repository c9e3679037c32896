"""Ways to begin anew where an episode has ended.

The library has one, `"library"`. The others stand here to be measured beside it. Each
is given all environments after a step and returns them as the next step finds them,
with their chains of keys.
"""

import contextlib
import functools as ft
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeAlias
from unittest import mock

import jax
import jax.numpy as jnp
import jax.tree_util as jtu
from jaxtyping import Array, Bool, Int, Key

from nnx_ppo_fn._keys import advance_keys
from nnx_ppo_fn._tree import select
from nnx_ppo_fn.algorithms import rollout
from nnx_ppo_fn.algorithms.environments import reset_all

from .stock import Stocked, Stocking


Keys: TypeAlias = Key[Array, " B"]
Flags: TypeAlias = Bool[Array, " B"]
Restart: TypeAlias = Callable[[Any, Flags, Keys, Any], tuple[Keys, Any]]
"""`restart(env, done, keys, state)` returns `(keys, state)`, all `[B, ...]`."""

GROUP = 16
"""Environments that are reset at a time by `"groups"`, and few by `"few or all"`."""


def reset_always(env: Any, done: Flags, keys: Keys, state: Any) -> tuple[Keys, Any]:
    """Resets all environments at every step, and takes those that are needed."""
    return select(done, _fresh(env, keys), (keys, state))


def reset_if_any(env: Any, done: Flags, keys: Keys, state: Any) -> tuple[Keys, Any]:
    """Resets all environments at steps where some episode ended."""
    return jax.lax.cond(
        jnp.any(done),
        lambda: select(done, _fresh(env, keys), (keys, state)),
        lambda: (keys, state),
    )


def reset_in_groups(env: Any, done: Flags, keys: Keys, state: Any) -> tuple[Keys, Any]:
    """Resets those whose episode ended, a few at a time, until none is left."""

    def some(loop: tuple[Flags, Keys, Any]) -> tuple[Flags, Keys, Any]:
        left, keys, state = loop
        rows = _group(left)
        keys, state = _reset_rows(env, rows, keys, state)
        return left.at[rows].set(False, mode="drop"), keys, state

    _, keys, state = jax.lax.while_loop(
        lambda loop: jnp.any(loop[0]), some, (done, keys, state)
    )
    return keys, state


def reset_few_or_all(env: Any, done: Flags, keys: Keys, state: Any) -> tuple[Keys, Any]:
    """Resets no more than a few where a few episodes ended, and all where many did."""

    def restart() -> tuple[Keys, Any]:
        return jax.lax.cond(
            jnp.sum(done) <= GROUP,
            lambda: _reset_rows(env, _group(done), keys, state),
            lambda: select(done, _fresh(env, keys), (keys, state)),
        )

    return jax.lax.cond(jnp.any(done), restart, lambda: (keys, state))


def take_own_spare(
    env: Stocking, done: Flags, keys: Keys, stocked: Stocked
) -> tuple[Keys, Stocked]:
    """Every environment has one start in stock, and takes that.

    When somebody needs one that is spent, all that are spent are made anew. Start after
    start comes from the environment's own chain, so when it was made does not matter.
    """

    def restart() -> tuple[Keys, Stocked]:
        chain, (start, spent) = _refill(
            env, jnp.any(done & stocked.spent), keys, stocked
        )
        return chain, Stocked(select(done, start, stocked.state), start, spent | done)

    return jax.lax.cond(jnp.any(done), restart, lambda: (keys, stocked))


def take_from_pool(
    env: Stocking, done: Flags, keys: Keys, stocked: Stocked
) -> tuple[Keys, Stocked]:
    """All environments have one stock, as large as they are many, and take the next.

    When fewer are left than are needed, all that are spent are made anew.
    """

    def restart() -> tuple[Keys, Stocked]:
        needed = jnp.sum(done)
        too_few = jnp.sum(~stocked.spent) < needed
        chain, (start, spent) = _refill(env, too_few, keys, stocked)
        unspent_first = jnp.argsort(spent, stable=True)
        position = jnp.clip(jnp.cumsum(done) - 1, 0)
        taken = jtu.tree_map(lambda leaf: leaf[unspent_first[position]], start)
        spent = spent.at[unspent_first].max(jnp.arange(len(done)) < needed)
        return chain, Stocked(select(done, taken, stocked.state), start, spent)

    return jax.lax.cond(jnp.any(done), restart, lambda: (keys, stocked))


def take_first(
    env: Stocking, done: Flags, keys: Keys, stocked: Stocked
) -> tuple[Keys, Stocked]:
    """Goes back to where the environment's first episode began."""
    del env
    state = select(done, stocked.start, stocked.state)
    return keys, Stocked(state, stocked.start, stocked.spent)


class Way(NamedTuple):
    """A way to begin anew.

    - `restart`: `None` for the library's own.
    - `stocks`: whether environments carry starts with them, as `Stocking` does.
    - `gives_up`: what one has to do without.
    """

    restart: Restart | None
    stocks: bool
    gives_up: str


WAYS: Mapping[str, Way] = {
    "library": Way(None, False, "nothing"),
    "always": Way(reset_always, False, "nothing"),
    "if any": Way(reset_if_any, False, "nothing"),
    "groups": Way(reset_in_groups, False, "parallelism where many end"),
    "few or all": Way(
        reset_few_or_all,
        False,
        "compiling one reset",
    ),
    "own spare": Way(take_own_spare, True, "memory: every state twice"),
    "pool": Way(
        take_from_pool,
        True,
        "memory: every state twice; an environment's starts depend on the others",
    ),
    "first state": Way(
        take_first, True, "memory: every state twice; all starts but the first"
    ),
}
"""`"groups"` is what the library does on a CPU with 16 to 256 environments, written
again: it shows how far two measurements of the same thing may be apart. `"if any"` is
what it does on other devices."""


def restarting(way: Way) -> contextlib.AbstractContextManager[Any]:
    """Has rollouts that are traced meanwhile restart in this way."""
    if way.restart is None:
        return contextlib.nullcontext()
    return mock.patch.object(rollout, "restart", ft.partial(_in_one_group, way.restart))


def _in_one_group(
    restart: Restart, env: Any, done: Flags, keys: Keys, state: Any, n_shards: int
) -> tuple[Keys, Any]:
    """A way, called as the library's own, without shards."""
    del n_shards
    return restart(env, done, keys, state)


def _fresh(env: Any, keys: Keys) -> tuple[Keys, Any]:
    """The chains one link further on, and a start for each of them."""
    chain, draws = advance_keys(keys)
    return chain, reset_all(env, draws)


def _group(flags: Flags) -> Int[Array, " rows"]:
    """The first rows that are flagged, filled up with a row that is not there."""
    batch = len(flags)
    (rows,) = jnp.nonzero(flags, size=min(GROUP, batch), fill_value=batch)
    return rows


def _reset_rows(
    env: Any, rows: Int[Array, " rows"], keys: Keys, state: Any
) -> tuple[Keys, Any]:
    """Fresh starts in some rows alone."""
    fresh = _fresh(env, keys.at[rows].get(mode="clip"))
    return jtu.tree_map(
        lambda leaf, new: leaf.at[rows].set(new, mode="drop"), (keys, state), fresh
    )


def _refill(
    env: Stocking, needed: Bool[Array, ""], keys: Keys, stocked: Stocked
) -> tuple[Keys, tuple[Any, Flags]]:
    """Replaces the starts that are spent, where it is needed."""
    start, spent = stocked.start, stocked.spent

    def refill() -> tuple[Keys, tuple[Any, Flags]]:
        chain, fresh = select(spent, _fresh(env.env, keys), (keys, start))
        return chain, (fresh, jnp.zeros_like(spent))

    return jax.lax.cond(needed, refill, lambda: (keys, (start, spent)))
