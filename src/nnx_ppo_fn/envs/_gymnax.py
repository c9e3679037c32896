"""Gymnax environments under this package's conventions (the extra `gymnax`)."""

import dataclasses
import math
from collections.abc import Generator
from contextlib import contextmanager
from functools import cache
from typing import Any, final, NamedTuple

import equinox as eqx
import gymnax
import jax
import jax.numpy as jnp
import jax.random as jr
import jax.tree_util as jtu
import numpy as np
from gymnax.environments import spaces
from jaxtyping import Array, Float, Int, Key

from .._custom_types import PyTree
from .._tree import is_key
from .types import State


@final
class _GymnaxData(eqx.Module):
    """Gymnax's own state, and the keys for its random transitions."""

    simulator: PyTree
    key: Key[Array, ""]


@final
class GymnaxEnv(eqx.Module):
    """A gymnax environment by its id.

    The differences from gymnax itself: episodes are not restarted, so that the last
    step shows its own observation; states hold their own keys; everything is
    strongly typed, with float32 rewards and observations (a lone number becomes a
    vector of one); a continuous action is a vector `[action_size]` in [-1, 1], which
    is scaled to the bounds of the action space; `info` holds `"terminated"` and
    `"truncated"` only, and failing on the last step allowed counts as terminated.

    **Arguments:**

    - `id`: a name that gymnax registers, such as `"CartPole-v1"`.
    - `options`: fields of the environment's parameters (such as
        `max_steps_in_episode`) or arguments of its constructor (such as `size`).
        Hashable values.

    **Raises:**

    `ValueError` if the action space is neither discrete nor a bounded box.
    """

    id: str = eqx.field(static=True)
    options: tuple[tuple[str, Any], ...] = eqx.field(static=True)

    def __init__(self, id: str, **options: Any):
        self.id = id
        self.options = tuple(sorted(options.items()))
        _build(self.id, self.options)

    @property
    def observation_size(self) -> int:
        """Numbers in one observation, all of its axes and parts together."""
        return _build(self.id, self.options).observation_size

    @property
    def action_size(self) -> int:
        """Number of choices, or numbers in one action."""
        space = _build(self.id, self.options).action_space
        return space.n if isinstance(space, spaces.Discrete) else math.prod(space.shape)

    @property
    def discrete(self) -> bool:
        """Whether an action is one integer."""
        space = _build(self.id, self.options).action_space
        return isinstance(space, spaces.Discrete)

    @property
    def max_episode_length(self) -> int:
        """Gymnax's time limit in steps."""
        return int(_build(self.id, self.options).params.max_steps_in_episode)

    def reset(self, key: Key[Array, ""]) -> State:
        """Start an episode.

        **Arguments:**

        - `key`: the source of all randomness in the episode.

        **Returns:**

        The first state.
        """
        built = _build(self.id, self.options)
        start_key, episode_key = jr.split(key)
        with _standard_promotion():
            obs, simulator = built.env.reset_env(start_key, built.params)
        return State.create(
            _GymnaxData(simulator, episode_key),
            _for_networks(obs),
            0.0,
            terminated=False,
            truncated=False,
        )

    def step(
        self, state: State, action: int | Int[Array, ""] | Float[Array, " size"]
    ) -> State:
        """Advance by one step.

        **Arguments:**

        - `state`: the previous state.
        - `action`: an integer if `discrete`, else a vector in [-1, 1].

        **Returns:**

        The next state.
        """
        built = _build(self.id, self.options)
        before: _GymnaxData = state.data
        next_key, step_key = jr.split(before.key)
        with _standard_promotion():
            obs, simulator, reward, terminated, _ = built.env.step_env(
                step_key,
                before.simulator,
                _to_space(built.action_space, jnp.asarray(action)),
                built.params,
            )
            truncated = built.env.is_truncated(simulator, built.params)
        return State.create(
            _GymnaxData(_with_dtypes_of(before.simulator, simulator), next_key),
            _for_networks(obs),
            reward,
            terminated=jnp.asarray(terminated),
            truncated=jnp.asarray(truncated),
        )


class _Built(NamedTuple):
    env: Any
    params: Any
    action_space: Any
    observation_size: int


@cache
def _build(id: str, options: tuple[tuple[str, Any], ...]) -> _Built:
    """What gymnax makes of an id: kept outside of `GymnaxEnv`, since it holds arrays
    and compares by identity."""
    # The first use may be inside a trace, and what is cached must not be a tracer.
    with jax.ensure_compile_time_eval(), _standard_promotion():
        env, params = _make(id, dict(options))
        action_space = env.action_space(params)
        obs, _ = jax.eval_shape(env.reset_env, jr.key(0), params)
    _check_action_space(id, action_space)
    observation_size = sum(math.prod(leaf.shape) for leaf in jtu.tree_leaves(obs))
    return _Built(env, params, action_space, observation_size)


def _make(id: str, options: dict[str, Any]) -> tuple[Any, Any]:
    env, params = gymnax.make(id)
    names = {field.name for field in dataclasses.fields(params)}
    for_params = {name: options[name] for name in options if name in names}
    for_constructor = {name: options[name] for name in options if name not in names}
    if for_constructor:
        env, params = gymnax.make(id, **for_constructor)
    return env, dataclasses.replace(params, **for_params)


def _check_action_space(id: str, space: Any) -> None:
    if isinstance(space, spaces.Discrete):
        return
    if not isinstance(space, spaces.Box):
        raise ValueError(
            f"gymnax:{id} has the action space {space!r}. Supported are Discrete, and "
            "Box with finite bounds."
        )
    if not (np.isfinite(space.low).all() and np.isfinite(space.high).all()):
        raise ValueError(
            f"gymnax:{id} has an action space without finite bounds, {space!r}, to "
            "which actions in [-1, 1] cannot be scaled."
        )


def _to_space(space: Any, action: Array) -> Array:
    """The one place where a policy's action becomes gymnax's: integers pass, and
    [-1, 1] is mapped linearly onto `[low, high]`, whatever lies outside clipped."""
    if isinstance(space, spaces.Discrete):
        return action.astype(space.dtype)
    low = np.broadcast_to(np.asarray(space.low, np.float32), space.shape)
    high = np.broadcast_to(np.asarray(space.high, np.float32), space.shape)
    fraction = (jnp.clip(action, -1.0, 1.0).reshape(space.shape) + 1) / 2
    return jnp.asarray(low) + fraction * (high - low)


@contextmanager
def _standard_promotion() -> Generator[None]:
    """Gymnax mixes dtypes and ranks, whatever modes its caller runs in."""
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        yield


def _for_networks(obs: PyTree) -> PyTree:
    return jtu.tree_map(
        lambda leaf: jnp.atleast_1d(jnp.asarray(leaf, jnp.float32)), obs
    )


def _with_dtypes_of(before: PyTree, after: PyTree) -> PyTree:
    def cast(old: Array, new: Any) -> Array:
        return new if is_key(old) else jnp.asarray(new, old.dtype)

    return jtu.tree_map(cast, before, after)


def registered_ids() -> tuple[str, ...]:
    """The ids that gymnax knows at this moment."""
    return tuple(gymnax.registered_envs)
