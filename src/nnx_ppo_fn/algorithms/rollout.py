"""Drives the environments with the network and records what a replay needs."""

import dataclasses
import functools as ft
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.tree_util as jtu
from jaxtyping import Array, Bool, Float

from .._custom_types import Keys, PyTree
from .._expect import as_shards
from .._keys import advance_keys, derive
from .._tree import anywhere, select
from ..envs import episode_flags, final_observation, RLEnv
from ..networks.types import AnyModule
from ..networks.unroll import reset_where
from .environments import start_all, step_all
from .recording import record_activations_rollout as record_activations_rollout
from .restarts import restart
from .types import Rollout, RolloutState, Transition


def initial_rollout_state(env: RLEnv, network: AnyModule, keys: Keys) -> RolloutState:
    """Fresh environments with fresh carries.

    **Arguments:**

    - `env`: the environment.
    - `network`: whose carry is initialised.
    - `keys`: one key per environment, `[B]`. Environment `i`'s start, resets and carry
      come from key `i` alone.
    """
    batch = len(keys)
    chain, starts = advance_keys(derive(keys, "environment"))
    return RolloutState(
        env_state=start_all(env, starts),
        carry=network.initialize_state(derive(keys, "network")),
        is_first=jnp.ones(batch, jnp.bool_),
        keys=chain,
        episode_return=jnp.zeros(batch, jnp.float32),
        episode_length=jnp.zeros(batch, jnp.int32),
    )


def unroll_env(
    env: RLEnv,
    network: AnyModule,
    rollout_state: RolloutState,
    length: int,
    *,
    n_shards: int = 1,
) -> tuple[RolloutState, Rollout]:
    """Takes `length` steps in every environment.

    **Arguments:**

    - `env`: the environment.
    - `network`: decides; its output must be a `PPONetworkOutput`.
    - `rollout_state`: where the environments stand, leaves `[B, ...]`.
    - `length`: steps per environment, `T`.
    - `n_shards`: how many groups of neighbouring environments are looked through, each
      by itself, for episodes that ended. On a mesh of as many devices, or of a divisor,
      environments that begin anew then stay on their device.

    **Returns:**

    `(rollout_state, rollout)`. An episode that ends starts anew on the spot from a
    fresh `env.reset`; the network's carry is reset before its next step. On a CPU,
    more than 16 environments are reset in a loop that `jax.jvp` goes through, and
    `jax.grad` with respect to states of the environments does not.

    **Raises:**

    `TypeError` and `ValueError` for an `n_shards` that is no count, and where the
    environments cannot be divided into as many equal groups; `TypeError` where the
    state is of an environment whose `reset` gives other types.
    """
    n_shards = as_shards(n_shards, len(rollout_state.is_first), "a rollout state")
    copies = _Copies()

    def step(
        state: RolloutState, is_last: Bool[Array, ""]
    ) -> tuple[RolloutState, tuple[Bool[Array, " B"], Transition]]:
        carry = reset_where(network, state.is_first, state.carry)
        observation = state.env_state.obs
        decided = network(carry, observation)
        stepped = step_all(env, state.env_state, decided.output.actions)
        done, truncated = episode_flags(stepped)
        # What follows a time limit, and what follows the rollout.
        following = select(truncated, final_observation(stepped), stepped.obs)
        bootstrap_value = _when_any(
            truncated | (is_last & ~done),
            lambda: critic_value(network, decided.next_state, following),
            otherwise=jtu.tree_map(jnp.zeros_like, decided.output.value_estimates),
        )
        keys, env_state = restart(env, done, state.keys, stepped, n_shards)
        episode_return = state.episode_return + total_reward(stepped.reward)
        episode_length = state.episode_length + 1
        transition = Transition(
            obs=observation,
            network_output=decided.output,
            rewards=stepped.reward,
            done=done,
            truncated=truncated,
            bootstrap_value=bootstrap_value,
            metrics={
                "env": dict(stepped.metrics),
                "net": decided.metrics,
                "episode": {"return": episode_return, "length": episode_length},
            },
            rollout_extras=copies.remove(
                decided.rollout_extras, (observation, decided.output)
            ),
        )
        next_state = RolloutState(
            env_state=env_state,
            carry=decided.next_state,
            is_first=done,
            keys=keys,
            episode_return=jnp.where(done, 0, episode_return),
            episode_length=jnp.where(done, 0, episode_length),
        )
        return next_state, (state.is_first, transition)

    final_state, (is_first, transitions) = jax.lax.scan(
        step, rollout_state, jnp.arange(length) == length - 1
    )
    transitions = dataclasses.replace(
        transitions,
        rollout_extras=copies.restore(
            transitions.rollout_extras, (transitions.obs, transitions.network_output)
        ),
    )
    rollout = Rollout(
        initial_carry=rollout_state.carry,
        is_first=is_first,
        transitions=transitions,
        last_observation=final_state.env_state.obs,
    )
    return final_state, rollout


def critic_value(network: AnyModule, carry: PyTree, observation: PyTree) -> PyTree:
    """The critic's value of an observation, in inference mode.

    **Arguments:**

    - `network`: the whole PPO network.
    - `carry`: the carry before the step, `[B, ...]`; nothing of it is advanced.
    - `observation`: leaves `[B, ...]`.

    **Returns:**

    `value_estimates`, leaves `[B]`.
    """
    silent = eqx.nn.inference_mode(network)
    return silent(carry, observation).output.value_estimates


def total_reward(reward: PyTree) -> Float[Array, " B"]:
    """The sum of all rewards of a step, `[B]`."""
    parts = [leaf.astype(jnp.float32) for leaf in jtu.tree_leaves(reward)]
    return ft.reduce(jnp.add, parts)


def _when_any(
    flags: Bool[Array, " B"], compute: Callable[[], PyTree], *, otherwise: PyTree
) -> PyTree:
    """`compute()` where a flag is set, which is free when none is."""
    return jax.lax.cond(
        anywhere(flags),
        lambda: select(flags, compute(), otherwise),
        lambda: otherwise,
    )


class _Copies:
    """Spares a scan the stacking of arrays that it stacks already.

    A normaliser at the network's input returns the very observation as its extras, and
    a discrete sampler the very action. Traced values have an identity, so the second
    copy is found, left out of what the scan stacks, and put back afterwards.
    """

    def __init__(self):
        self._sources: list[int | None] = []
        self._structure = jtu.tree_structure(None)

    def remove(self, extras: PyTree, originals: PyTree) -> list[Any]:
        """The arrays of `extras`, `None` for those that are leaves of `originals`."""
        sources = {id(x): i for i, x in enumerate(jtu.tree_leaves(originals))}
        leaves, self._structure = jtu.tree_flatten(extras)
        self._sources = [sources.get(id(leaf)) for leaf in leaves]
        return [None if id(leaf) in sources else leaf for leaf in leaves]

    def restore(self, kept: list[Any], originals: PyTree) -> PyTree:
        """The extras of all steps, from what was stacked of them."""
        available = jtu.tree_leaves(originals)
        leaves = [
            leaf if source is None else available[source]
            for leaf, source in zip(kept, self._sources, strict=True)
        ]
        return jtu.tree_unflatten(self._structure, leaves)
