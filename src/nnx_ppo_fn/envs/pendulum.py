"""The pendulum swing-up: a small task with a continuous action."""

from collections.abc import Sequence
from typing import final

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Int, Key

from ._checks import check_steps
from ._drawing import draw_pendulum, Frame
from .types import State


GRAVITY = 10.0
MASS = 1.0
LENGTH = 1.0
TIME_STEP = 0.05
MAX_TORQUE = 2.0
MAX_SPEED = 8.0


@final
class _PendulumData(eqx.Module):
    angle: Float[Array, ""]
    speed: Float[Array, ""]
    time: Int[Array, ""]


@final
class Pendulum(eqx.Module):
    r"""Swing a pendulum up and hold it there, with a motor that is too weak to lift
    it at once.

    The physics are those of Gym's `Pendulum-v1`. The angle $\theta$ is 0 when the
    pendulum points up; the reward is
    $-(\theta^2 + 0.1\,\dot\theta^2 + 0.001\,u^2)$ with $\theta$ in $[-\pi, \pi)$ and
    torque $u$, both from before the step. The start is uniform: any angle, speed in
    ±1. Episodes never terminate; they are truncated after `max_episode_length`
    steps.

    The observation is $(\cos\theta, \sin\theta, \dot\theta)$. The action `[1]` lies in
    [-1, 1] and is scaled to a torque in ±2.

    **Arguments:**

    - `max_episode_length`: the time limit in steps.

    **Raises:**

    `ValueError` if `max_episode_length` is less than 1.
    """

    observation_size = 3
    action_size = 1
    discrete = False
    seconds_per_step = TIME_STEP

    max_episode_length: int = eqx.field(static=True, default=200)

    def __check_init__(self):
        check_steps(self, "max_episode_length", self.max_episode_length)

    def reset(self, key: Key[Array, ""]) -> State:
        """Starts an episode at a random angle and speed.

        **Arguments:**

        - `key`: draws the start.

        **Returns:**

        The first state.
        """
        angle, speed = jr.uniform(key, (2,), jnp.float32, minval=-1.0, maxval=1.0)
        data = _PendulumData(jnp.pi * angle, speed, jnp.zeros((), jnp.int32))
        return State.create(
            data, _observe(data), 0.0, terminated=False, truncated=False
        )

    def step(self, state: State, action: Float[Array, "1"]) -> State:
        """Applies a torque for one time step.

        **Arguments:**

        - `state`: the previous state.
        - `action`: the torque as a fraction of the greatest one; clipped to [-1, 1].

        **Returns:**

        The next state.
        """
        angle, speed = state.data.angle, state.data.speed
        torque = MAX_TORQUE * jnp.clip(action[0], -1.0, 1.0)
        deviation = (angle + jnp.pi) % (2 * jnp.pi) - jnp.pi
        cost = deviation**2 + 0.1 * speed**2 + 0.001 * torque**2

        acceleration = (
            3 * GRAVITY / (2 * LENGTH) * jnp.sin(angle)
            + 3.0 / (MASS * LENGTH**2) * torque
        )
        speed = jnp.clip(speed + TIME_STEP * acceleration, -MAX_SPEED, MAX_SPEED)
        data = _PendulumData(angle + TIME_STEP * speed, speed, time=state.data.time + 1)
        return State.create(
            data,
            _observe(data),
            -cost,
            terminated=False,
            truncated=data.time >= self.max_episode_length,
        )

    def render(
        self, trajectory: Sequence[State], *, height: int = 240, width: int = 320
    ) -> list[Frame]:
        """Draws one frame for every state.

        **Arguments:**

        - `trajectory`: states without batch axes.
        - `height`, `width`: the size of a frame in pixels.

        **Returns:**

        The frames, RGB.

        **Raises:**

        `ImportError` if Pillow is not installed (it comes with the extra `cli`).
        """
        return [
            draw_pendulum(float(state.data.angle), height, width)
            for state in trajectory
        ]


def _observe(data: _PendulumData) -> Float[Array, "3"]:
    return jnp.stack([jnp.cos(data.angle), jnp.sin(data.angle), data.speed])
