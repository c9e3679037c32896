"""Gymnax environments under this package's conventions (the extra `gymnax`)."""

import math
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
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
from ._adapters import (
    check_options,
    defaults_of,
    frozen_options,
    leniency,
    numbers_in,
    Options,
    with_dtypes_of,
)
from ._checks import check_steps
from ._drawing import draw_cartpole, draw_grid, draw_pendulum, Frame
from ._scaling import to_bounds
from .types import State


# Gymnax's name for it.
_LIMIT = "max_steps_in_episode"


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
    - `max_episode_length`: the time limit in steps, gymnax's `max_steps_in_episode`.
    - `options`: fields of the environment's parameters (such as `max_torque`) or
      arguments of its constructor (such as `size`). Hashable values.

    **Raises:**

    - `ValueError` if the action space is neither discrete nor a bounded box, or if the
      time limit is less than 1.
    - `TypeError` if there is no such option, or one of another kind.
    """

    id: str = eqx.field(static=True)
    options: Options = eqx.field(static=True)

    def __init__(
        self, id: str, *, max_episode_length: int | None = None, **options: Any
    ):
        self.id = id
        if max_episode_length is not None:
            options[_LIMIT] = max_episode_length
        self.options = frozen_options(f"gymnax:{id}", options)
        _build(self.id, self.options)

    @property
    def _built(self) -> "_Built":
        return _build(self.id, self.options)

    @property
    def observation_size(self) -> int:
        """Numbers in one observation, all of its axes and parts together."""
        return numbers_in(self._built.observation)

    @property
    def action_size(self) -> int:
        """Number of choices, or numbers in one action."""
        space = self._built.action_space
        return space.n if isinstance(space, spaces.Discrete) else math.prod(space.shape)

    @property
    def discrete(self) -> bool:
        """Whether an action is one integer."""
        space = self._built.action_space
        return isinstance(space, spaces.Discrete)

    @property
    def max_episode_length(self) -> int:
        """Gymnax's time limit in steps."""
        return int(self._built.params.max_steps_in_episode)

    @property
    def seconds_per_step(self) -> float:
        """Simulated seconds in one step; a tenth where gymnax's world has no clock."""
        params = self._built.params
        for name in ("dt", "tau"):
            if hasattr(params, name):
                return float(getattr(params, name))
        return 0.1

    @property
    def render(self) -> Callable[..., list[Frame]]:
        """Draws one frame for every state, as `RenderableEnv.render` does.

        **Raises:**

        `AttributeError` where there is no picture of the environment: there are some
        of `CartPole-v1`, `Pendulum-v1` and the environments whose observation is a
        grid of channels, such as MinAtar's.
        """
        draw = _picture_of(self.id, self._built.observation)

        def render(
            trajectory: Sequence[State], *, height: int = 240, width: int = 320
        ) -> list[Frame]:
            return [draw(state, height, width) for state in trajectory]

        return render

    def reset(self, key: Key[Array, ""]) -> State:
        """Starts an episode.

        **Arguments:**

        - `key`: the source of all randomness in the episode.

        **Returns:**

        The first state.
        """
        built = self._built
        start_key, episode_key = jr.split(key)
        with leniency():
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
        """Advances by one step.

        **Arguments:**

        - `state`: the previous state.
        - `action`: an integer if `discrete`, else a vector in [-1, 1].

        **Returns:**

        The next state.
        """
        built = self._built
        before: _GymnaxData = state.data
        next_key, step_key = jr.split(before.key)
        with leniency():
            obs, simulator, reward, terminated, _ = built.env.step_env(
                step_key,
                before.simulator,
                _to_space(built.action_space, jnp.asarray(action)),
                built.params,
            )
            truncated = built.env.is_truncated(simulator, built.params)
        return State.create(
            _GymnaxData(with_dtypes_of(before.simulator, simulator), next_key),
            _for_networks(obs),
            reward,
            terminated=jnp.asarray(terminated),
            truncated=jnp.asarray(truncated),
        )


class _Built(NamedTuple):
    env: Any
    params: Any
    action_space: Any
    observation: PyTree


@cache
def _build(id: str, options: Options) -> _Built:
    """What gymnax makes of an id: kept outside of `GymnaxEnv`, since it holds arrays
    and compares by identity."""
    # The first use may be inside a trace, and what is cached must not be a tracer.
    with jax.ensure_compile_time_eval(), leniency():
        env, params = _make(id, dict(options))
        action_space = env.action_space(params)
        obs, _ = jax.eval_shape(env.reset_env, jr.key(0), params)
    _check_action_space(id, action_space)
    check_steps(f"gymnax:{id}", "max_episode_length", int(params.max_steps_in_episode))
    return _Built(env, params, action_space, obs)


def _make(id: str, options: dict[str, Any]) -> tuple[Any, Any]:
    if _LIMIT in options:
        check_steps(f"gymnax:{id}", "max_episode_length", options[_LIMIT])
    env, params = gymnax.make(id)
    names = {field.name: getattr(params, field.name) for field in fields(params)}
    # A function may have been registered in the place of a class.
    constructors = getattr(gymnax.registration, "_registry", {})
    known = defaults_of(constructors.get(id, type(env)))
    if known is not None:
        check_options(f"gymnax:{id}", options, known | names)
    for_params = {name: options[name] for name in options if name in names}
    for_constructor = {name: options[name] for name in options if name not in names}
    if for_constructor:
        env, params = gymnax.make(id, **for_constructor)
    return env, replace(params, **for_params)


def _check_action_space(id: str, space: Any) -> None:
    if isinstance(space, spaces.Discrete):
        return
    if not isinstance(space, spaces.Box):
        raise ValueError(
            f"gymnax:{id} has the action space {space!r}; supported are Discrete, and "
            "Box with finite bounds"
        )
    if not (np.isfinite(space.low).all() and np.isfinite(space.high).all()):
        raise ValueError(
            f"gymnax:{id} has an action space without finite bounds, {space!r}, to "
            "which actions in [-1, 1] cannot be scaled"
        )


def _to_space(space: Any, action: Array) -> Array:
    """The one place where a policy's action becomes gymnax's; integers pass."""
    if isinstance(space, spaces.Discrete):
        return action.astype(space.dtype)
    low, high = (
        np.broadcast_to(np.asarray(bound, np.float32), space.shape)
        for bound in (space.low, space.high)
    )
    return to_bounds(action, low, high)


def _picture_of(id: str, observation: PyTree) -> Callable[[State, int, int], Frame]:
    """Draws a state in a height and a width."""
    if id == "CartPole-v1":
        return lambda state, height, width: draw_cartpole(
            float(state.data.simulator.x),
            float(state.data.simulator.theta),
            height,
            width,
        )
    if id == "Pendulum-v1":
        return lambda state, height, width: draw_pendulum(
            float(state.data.simulator.theta), height, width
        )
    if len(getattr(observation, "shape", ())) == 3:
        return lambda state, height, width: draw_grid(
            np.asarray(state.obs), height, width
        )
    raise AttributeError(f"there is no picture of gymnax:{id}")


def _for_networks(obs: PyTree) -> PyTree:
    return jtu.tree_map(
        lambda leaf: jnp.atleast_1d(jnp.asarray(leaf, jnp.float32)), obs
    )


def registered_ids() -> tuple[str, ...]:
    """The ids that gymnax knows at this moment."""
    return tuple(gymnax.registered_envs)


make = GymnaxEnv
