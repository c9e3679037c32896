"""Environments as the algorithms see them: one environment, or a batch of them.

A simulator's reset and step are thousands of operations, which take seconds to trace.
They are traced here, once per environment, for the checks, the rollout and evaluation
alike.
"""

from typing import Any

import jax
from jax.core import Tracer
from jaxtyping import Array, Key

from .._custom_types import Keys, PyTree
from .._tree import strong
from ..envs import RLEnv
from .compiled import compiled, UNOPTIMISED


def reset_one(env: RLEnv, key: Key[Array, ""]) -> Any:
    """The start of one episode, strongly typed."""
    return compiled(_reset, static=(0,))(env, key)


def step_one(env: RLEnv, state: PyTree, action: PyTree) -> Any:
    """The next state of one environment, strongly typed."""
    return compiled(_step, static=(0,))(env, state, action)


def reset_all(env: RLEnv, keys: Keys) -> Any:
    """The start of one episode per key, leaves `[B, ...]`."""
    return jax.vmap(lambda key: reset_one(env, key))(keys)


def start_all(env: RLEnv, keys: Keys) -> Any:
    """`reset_all` for the one time that it is not part of a larger program.

    What runs once is compiled quickly rather than well: half the time on a CPU.
    """
    is_traced = isinstance(keys, Tracer)
    if is_traced or jax.default_backend() != "cpu":
        return reset_all(env, keys)
    return compiled(reset_all, static=(0,), options=UNOPTIMISED)(env, keys)


def step_all(env: RLEnv, states: PyTree, actions: PyTree) -> Any:
    """The next states of all environments, leaves `[B, ...]`."""
    return jax.vmap(lambda state, action: step_one(env, state, action))(states, actions)


def _reset(env: RLEnv, key: Key[Array, ""]) -> Any:
    return strong(env.reset(key))


def _step(env: RLEnv, state: PyTree, action: PyTree) -> Any:
    return strong(env.step(state, action))
