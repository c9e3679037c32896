"""Cart-pole, with or without sight of the velocities."""

from collections.abc import Sequence
from typing import final

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Bool, Float, Int, Key

from ._checks import check_steps
from ._drawing import draw_cartpole, Frame
from .types import State


GRAVITY = 9.8
CART_MASS = 1.0
POLE_MASS = 0.1
TOTAL_MASS = CART_MASS + POLE_MASS
POLE_HALF_LENGTH = 0.5
FORCE = 10.0
TIME_STEP = 0.02
POSITION_LIMIT = 2.4
ANGLE_LIMIT = 12 * 2 * jnp.pi / 360
START_RANGE = 0.05


@final
class _CartPoleData(eqx.Module):
    physics: Float[Array, "4"]
    time: Int[Array, ""]


@final
class CartPole(eqx.Module):
    """Balance a pole on a cart by pushing the cart left (0) or right (1).

    The physics are those of Gym's `CartPole-v1`: semi-analytic dynamics of Barto,
    Sutton & Anderson, *Neuronlike adaptive elements that can solve difficult
    learning control problems* (1983), in explicit Euler steps of 0.02 s. The start
    is uniform in ±0.05 in every coordinate. Each step is rewarded with 1, the last
    one included. An episode terminates when the cart is more than 2.4 from the
    middle or the pole leans by more than 12 degrees, and is truncated after
    `max_episode_length` steps, so that the best return is `max_episode_length`.

    The observation is `(position, velocity, angle, angular velocity)`. With
    `hide_velocity` it is `(position, angle)`: what to do then depends on past
    observations, and a policy without memory cannot balance for long.

    **Arguments:**

    - `hide_velocity`: whether to leave the two velocities out of the observation.
    - `max_episode_length`: the time limit in steps.

    **Raises:**

    `ValueError` if `max_episode_length` is less than 1.
    """

    action_size = 2
    discrete = True
    seconds_per_step = TIME_STEP

    hide_velocity: bool = eqx.field(static=True, default=False)
    max_episode_length: int = eqx.field(static=True, default=500)

    def __check_init__(self):
        check_steps(self, "max_episode_length", self.max_episode_length)

    @property
    def observation_size(self) -> int:
        """2 if the velocities are hidden, else 4."""
        return 2 if self.hide_velocity else 4

    def reset(self, key: Key[Array, ""]) -> State:
        """Starts an episode near the upright pole.

        **Arguments:**

        - `key`: draws the start.

        **Returns:**

        The first state.
        """
        physics = jr.uniform(
            key, (4,), jnp.float32, minval=-START_RANGE, maxval=START_RANGE
        )
        data = _CartPoleData(physics, jnp.zeros((), jnp.int32))
        return State.create(
            data, self._observe(physics), 0.0, terminated=False, truncated=False
        )

    def step(self, state: State, action: int | Int[Array, ""]) -> State:
        """Pushes the cart for one time step.

        **Arguments:**

        - `state`: the previous state.
        - `action`: 1 pushes to the right, any other integer to the left.

        **Returns:**

        The next state.
        """
        physics = _euler_step(state.data.physics, jnp.asarray(action))
        time = state.data.time + 1
        return State.create(
            _CartPoleData(physics, time),
            self._observe(physics),
            1.0,
            terminated=_has_fallen(physics),
            truncated=time >= self.max_episode_length,
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
            draw_cartpole(float(position), float(angle), height, width)
            for position, _, angle, _ in (state.data.physics for state in trajectory)
        ]

    def _observe(self, physics: Float[Array, "4"]) -> Float[Array, " n"]:
        return physics[::2] if self.hide_velocity else physics


def _euler_step(
    physics: Float[Array, "4"], action: Int[Array, ""]
) -> Float[Array, "4"]:
    _, velocity, angle, angular_velocity = physics
    force = jnp.where(action == 1, FORCE, -FORCE)
    sine, cosine = jnp.sin(angle), jnp.cos(angle)
    pole_moment = POLE_MASS * POLE_HALF_LENGTH
    push = (force + pole_moment * angular_velocity**2 * sine) / TOTAL_MASS
    angular_acceleration = (GRAVITY * sine - cosine * push) / (
        POLE_HALF_LENGTH * (4.0 / 3.0 - POLE_MASS * cosine**2 / TOTAL_MASS)
    )
    acceleration = push - pole_moment * angular_acceleration * cosine / TOTAL_MASS
    rate = jnp.stack([velocity, acceleration, angular_velocity, angular_acceleration])
    return physics + TIME_STEP * rate


def _has_fallen(physics: Float[Array, "4"]) -> Bool[Array, ""]:
    position, angle = physics[0], physics[2]
    return (jnp.abs(position) > POSITION_LIMIT) | (jnp.abs(angle) > ANGLE_LIMIT)
