"""What Brax's and MuJoCo Playground's environments share.

Both have states with `obs`, `reward`, `done`, `info` and `metrics`, know no time limit,
and take actions in [-1, 1].
"""

import io
from abc import abstractmethod
from collections.abc import Callable, Sequence
from contextlib import redirect_stderr
from typing import Any, final

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float, Int, Key

from .._custom_types import PyTree
from .._tree import strong, tree_map
from ._adapters import leniency, numbers_in, Options, with_dtypes_of
from ._checks import check_steps
from ._drawing import Frame
from .types import RenderingError, State


@final
class Simulated:
    """One of the other library's environments, built once and compiled once.

    - `name`: what `make` calls it.
    - `env`: the environment, without wrappers.
    - `max_episode_length`: the time limit in steps.
    - `action_repeat`: steps of `env` in one of ours, with their rewards summed.
    - `reset`, `step`: those of `env`, compiled, strongly typed.
    - `observation_size`, `action_size`: numbers in an observation and in an action.
    - `seconds_per_step`: simulated time.
    """

    def __init__(
        self,
        name: str,
        env: Any,
        *,
        limit: int,
        seconds_per_step: float,
        action_repeat: int = 1,
    ):
        check_steps(name, "max_episode_length", limit)
        self.name = name
        self.env = env
        self.max_episode_length = limit
        self.action_repeat = action_repeat
        self.reset = jax.jit(self._reset)
        self.step = jax.jit(self._step)
        self.observation_size = numbers_in(jax.eval_shape(self.reset, jr.key(0)).obs)
        self.action_size = int(env.action_size)
        self.seconds_per_step = seconds_per_step

    def _reset(self, key: Key[Array, ""]) -> PyTree:
        with leniency():
            return strong(self.env.reset(key))

    def _step(self, raw: PyTree, action: Float[Array, " size"]) -> PyTree:
        def once(raw: PyTree, _: None) -> tuple[PyTree, Array]:
            # A copy, since steps write into the dicts of the state that they are given.
            after = self.env.step(tree_map(lambda leaf: leaf, raw), action)
            after = with_dtypes_of(raw, after)
            return after, after.reward

        with leniency():
            if self.action_repeat == 1:
                return once(raw, None)[0]
            raw, rewards = jax.lax.scan(once, raw, length=self.action_repeat)
        return raw.replace(reward=jnp.sum(rewards, axis=0))


@final
class _SimulatedData(eqx.Module):
    """The other library's state, and the steps since the start."""

    raw: PyTree
    time: Int[Array, ""]


class AbstractSimulatedEnv(eqx.Module):
    """An environment of another library, held by its id and options alone."""

    discrete = False

    id: eqx.AbstractVar[str]
    options: eqx.AbstractVar[Options]

    @property
    @abstractmethod
    def simulated(self) -> Simulated:
        """What the id and the options stand for."""

    @property
    def observation_size(self) -> int:
        """Numbers in one observation, all of its axes and parts together."""
        return self.simulated.observation_size

    @property
    def action_size(self) -> int:
        """Numbers in one action."""
        return self.simulated.action_size

    @property
    def max_episode_length(self) -> int:
        """The time limit in steps."""
        return self.simulated.max_episode_length

    @property
    def seconds_per_step(self) -> float:
        """Simulated seconds in one step."""
        return self.simulated.seconds_per_step

    def reset(self, key: Key[Array, ""]) -> State:
        """Starts an episode.

        **Arguments:**

        - `key`: the source of all randomness in the episode.

        **Returns:**

        The first state.
        """
        raw = self.simulated.reset(key)
        return self._state(raw, jnp.zeros((), jnp.int32))

    def step(self, state: State, action: Float[Array, " size"]) -> State:
        """Advances by one step.

        **Arguments:**

        - `state`: the previous state.
        - `action`: a vector in [-1, 1]; whatever lies outside is clipped.

        **Returns:**

        The next state.
        """
        raw = self.simulated.step(state.data.raw, jnp.clip(action, -1.0, 1.0))
        return self._state(raw, state.data.time + 1)

    @property
    def render(self) -> Callable[..., list[Frame]]:
        """Draws one frame for every state with MuJoCo's renderer, as
        `RenderableEnv.render` does, seen by the model's first camera if it has one.

        **Raises:**

        - `AttributeError` where there is no MuJoCo model to draw.
        - `RenderingError` when drawing, if there is no OpenGL to draw with.
        """
        if self._model is None:
            raise AttributeError(f"there is no picture of {self.simulated.name}")

        def render(
            trajectory: Sequence[State], *, height: int = 240, width: int = 320
        ) -> list[Frame]:
            raw = [state.data.raw for state in trajectory]
            return _draw_quietly(lambda: self._frames(raw, height, width))

        return render

    @property
    @abstractmethod
    def _model(self) -> Any:
        """The MuJoCo model that can be drawn, `None` where there is none."""

    @abstractmethod
    def _frames(self, raw: list[Any], height: int, width: int) -> Any:
        """The other library's own rendering of its states."""

    def _state(self, raw: PyTree, time: Int[Array, ""]) -> State:
        return State.create(
            _SimulatedData(raw, time),
            raw.obs,
            raw.reward,
            terminated=raw.done.astype(jnp.bool_),
            truncated=time >= self.max_episode_length,
            metrics=raw.metrics,
        )


def mujoco_camera(model: Any, height: int, width: int) -> str | None:
    """Makes a MuJoCo model ready for frames of a size.

    **Returns:**

    The name of its first camera, or `None` for the free one. By name, since Brax
    takes camera 0 for none.
    """
    buffer = model.vis.global_
    buffer.offheight = max(buffer.offheight, height)
    buffer.offwidth = max(buffer.offwidth, width)
    return (model.camera(0).name or None) if model.ncam else None


def _draw_quietly(draw: Callable[[], Any]) -> list[Frame]:
    """What `draw` returns, without the progress bar that it prints."""
    from mujoco import FatalError  # pyright: ignore[reportAttributeAccessIssue]

    try:
        with redirect_stderr(io.StringIO()):
            frames = draw()
    except (FatalError, ImportError, RuntimeError) as error:
        raise RenderingError(
            "MuJoCo finds no OpenGL to draw with; without a display, set the "
            "environment variable MUJOCO_GL to egl (system package libegl1) or to "
            "osmesa (system package libosmesa6) before Python starts "
            f"({type(error).__name__}: {error})"
        ) from error
    return [np.asarray(frame, np.uint8) for frame in frames]
