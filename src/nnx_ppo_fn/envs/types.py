"""What an environment is: the protocols that the rollout relies on, our own
state record, and the one reading of the end-of-episode flags."""

import warnings
from collections.abc import Mapping, Sequence
from typing import Any, final, Protocol, runtime_checkable, TypeGuard

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Key, UInt8

from .._custom_types import PyTree
from .._tree import strong, tree_map


# Of Brax's AutoResetWrapper and of Playground's BraxAutoResetWrapper.
_KEPT_STARTS = (
    "first_obs",
    "first_pipeline_state",
    "AutoResetWrapper_first_obs",
    "AutoResetWrapper_first_data",
)


@runtime_checkable
class EnvState(Protocol):
    """What an environment shows after a reset or a step.

    Any dataclass with these five fields will do; MuJoCo Playground's and Brax's
    states are such dataclasses, and so is `State`.

    **Attributes:**

    - `obs`: the observation, a pytree of arrays.
    - `reward`: the reward for the step that led here: an array, or a pytree of
      arrays (one reward for each objective).
    - `done`: whether the episode ended here, bool or float (0 or 1).
    - `info`: extra values by name. `episode_flags` reads `"truncated"`,
      `"truncation"`, `"time_out"` and `"terminated"`; `final_observation` reads
      `"final_observation"`.
    - `metrics`: values to log, by name.
    """

    @property
    def obs(self) -> Any:
        """The observation."""
        ...

    @property
    def reward(self) -> Any:
        """The reward for the step that led here."""
        ...

    @property
    def done(self) -> Any:
        """Whether the episode ended here."""
        ...

    @property
    def info(self) -> Mapping[str, Any]:
        """Extra values by name."""
        ...

    @property
    def metrics(self) -> Mapping[str, Any]:
        """Values to log, by name."""
        ...


@runtime_checkable
class RLEnv(Protocol):
    """One environment; a batch of environments is its `jax.vmap`.

    Both methods are pure functions that `jax.jit` can compile. An environment
    never resets itself: the state after the last step of an episode holds that
    step's own observation, which is needed to value an episode that a time limit
    cut short. Starting the next episode is the rollout's task.

    What is compiled for an environment is kept for the next use. An object that is
    changed afterwards is still the same to `jax.jit`, and the change is not noticed:
    make a new environment instead.
    """

    def reset(self, key: Key[Array, ""], /) -> EnvState:
        """Starts an episode.

        **Arguments:**

        - `key`: the source of all randomness in the episode. Another key gives
          another start.

        **Returns:**

        The first state.
        """
        ...

    def step(self, state: Any, action: Any, /) -> EnvState:
        """Advances by one step.

        **Arguments:**

        - `state`: what `reset` or the previous `step` returned.
        - `action`: a pytree of arrays, without any batch axis.

        **Returns:**

        The next state, of the structure, shapes and dtypes of `reset`'s.
        """
        ...


@runtime_checkable
class DescribedEnv(RLEnv, Protocol):
    """An environment that says what a network needs in order to act in it.

    Every environment that `make` builds is one.

    **Attributes:**

    - `observation_size`: numbers in one observation.
    - `action_size`: number of choices if `discrete`, else numbers in one action.
    - `discrete`: whether an action is one integer in `[0, action_size)`. Otherwise
      it is a vector `[action_size]` with entries in [-1, 1].
    - `max_episode_length`: the most steps in one episode, `None` if there is no limit.
    """

    @property
    def observation_size(self) -> int:
        """Numbers in one observation."""
        ...

    @property
    def action_size(self) -> int:
        """Number of choices, or numbers in one action."""
        ...

    @property
    def discrete(self) -> bool:
        """Whether an action is one integer."""
        ...

    @property
    def max_episode_length(self) -> int | None:
        """The most steps in one episode."""
        ...


@runtime_checkable
class RenderableEnv(RLEnv, Protocol):
    """An environment that can show an episode.

    **Attributes:**

    - `seconds_per_step`: what a step is worth on the clock of the world that it shows,
      so that a video runs at the right speed.
    """

    @property
    def seconds_per_step(self) -> float:
        """Seconds that pass in one step."""
        ...

    def render(
        self, trajectory: Sequence[Any], *, height: int = 240, width: int = 320
    ) -> list[UInt8[np.ndarray, "height width 3"]]:
        """Draws one frame for every state.

        **Arguments:**

        - `trajectory`: states that `reset` and `step` returned, without batch axes.
        - `height`, `width`: the size of a frame in pixels.

        **Returns:**

        The frames, RGB.
        """
        ...


class RenderingError(RuntimeError):
    """An environment that can be drawn cannot be drawn here."""


def is_described(env: Any) -> TypeGuard[DescribedEnv]:
    """Whether an environment says what a network needs, by asking for all of it.

    `isinstance` would look at classes alone, from Python 3.12 on: it sees neither what
    a wrapper passes on nor a property that raises.
    """
    names = ("observation_size", "action_size", "discrete", "max_episode_length")
    return all(hasattr(env, name) for name in names)


def is_renderable(env: Any) -> TypeGuard[RenderableEnv]:
    """Whether an environment can show an episode; see `is_described`."""
    return all(hasattr(env, name) for name in ("render", "seconds_per_step"))


@final
class State(eqx.Module):
    """The state of the environments in this package; an `EnvState`.

    **Attributes:**

    - `data`: the simulator's own state, private to the environment.
    - `obs`, `reward`, `done`, `info`, `metrics`: as in `EnvState`; `done` is bool, and
      `info` always has bool `"terminated"` and `"truncated"`.
    """

    data: PyTree
    obs: PyTree
    reward: PyTree
    done: Bool[Array, "..."]
    info: dict[str, Any]
    metrics: dict[str, Any]

    @classmethod
    def create(
        cls,
        data: PyTree,
        obs: PyTree,
        reward: Any,
        *,
        terminated: bool | Bool[Array, ""],
        truncated: bool | Bool[Array, ""],
        metrics: Mapping[str, Any] | None = None,
    ) -> "State":
        """Assembles a state from what an environment computes.

        **Arguments:**

        - `data`: the simulator's own state.
        - `obs`: the observation.
        - `reward`: the reward: a number, or a tree of numbers.
        - `terminated`: whether the episode ended of its own accord.
        - `truncated`: whether the time limit was reached; where `terminated` holds
          too, the state says terminated.
        - `metrics`: values to log, by name.

        **Returns:**

        A state without weakly typed leaves, with float32 rewards.
        """
        failed = jnp.asarray(terminated, bool)
        timed_out = jnp.asarray(truncated, bool) & ~failed
        return cls(
            data=strong(data),
            obs=strong(obs),
            reward=tree_map(lambda number: jnp.asarray(number, jnp.float32), reward),
            done=failed | timed_out,
            info={"terminated": failed, "truncated": timed_out},
            metrics=strong(dict(metrics or {})),
        )


def episode_flags(
    state: EnvState,
) -> tuple[Bool[Array, "*batch"], Bool[Array, "*batch"]]:
    """Reads whether an episode ended, and whether a time limit was the cause.

    The one place that knows the conventions: `done` may be bool or float; a time
    limit may be called `"truncated"`, `"truncation"` (Brax) or `"time_out"`
    (MuJoCo Playground) in `info`, with or without `done`; an environment that can
    tell a failure from a time limit on the same step says so in
    `info["terminated"]`, and then the failure wins.

    **Arguments:**

    - `state`: an environment's state; works for one environment and for a batch.

    **Returns:**

    `(done, truncated)`, both bool with the shape of `state.done`. `done` includes
    time limits; `truncated` is False where the episode terminated. A flag that
    `info` does not have counts as False.
    """
    done = _as_bool(state.done)
    info = state.info
    truncated = jnp.zeros_like(done)
    for name in ("truncated", "truncation", "time_out"):
        if name in info:
            truncated = truncated | _as_bool(info[name])
    if "terminated" in info:
        terminated = _as_bool(info["terminated"])
        done = done | terminated
        truncated = truncated & ~terminated
    return done | truncated, truncated


def warn_of_time_out(state: EnvState) -> None:
    """Warns where `info["time_out"]` has to be believed.

    Brax's inverted pendulum and Playground's cart-pole with vision set it at every end,
    a fall included; an agent that believes it learns that falling costs nothing.
    """
    if "time_out" in state.info and "terminated" not in state.info:
        warnings.warn(
            'info["time_out"] is taken for a time limit, but some simulators set it at '
            "every end, a fall included. Make Brax's and MuJoCo Playground's "
            "environments with nnx_ppo_fn.envs.make, which knows; in your own, say "
            'info["terminated"] as well',
            stacklevel=2,
        )


def final_observation(state: EnvState) -> PyTree:
    """The observation that an environment shows after a step, before any restart.

    **Arguments:**

    - `state`: what `step` returned; works for one environment and for a batch.

    **Returns:**

    `info["final_observation"]` where an environment that restarts itself keeps it,
    else `obs`, which is right for every environment that does not.
    """
    return state.info.get("final_observation", state.obs)


def hides_final_observation(state: EnvState) -> bool:
    """Whether an environment restarts itself and throws its last observation away.

    Told from the names in `info`, so the answer is static: Brax's and MuJoCo
    Playground's `AutoResetWrapper` keep the start that they go back to in
    `"first_obs"` and `"first_pipeline_state"`, or in
    `"AutoResetWrapper_first_obs"` and `"AutoResetWrapper_first_data"`. The value of
    a truncated episode's end cannot be asked for there.

    **Arguments:**

    - `state`: what `reset` or `step` returned, or the shapes of it.

    **Returns:**

    `False` wherever `final_observation` is right.
    """
    if "final_observation" in state.info:
        return False
    return any(name in state.info for name in _KEPT_STARTS)


def _as_bool(flag: Any) -> Bool[Array, "*batch"]:
    return jnp.asarray(flag).astype(bool)
