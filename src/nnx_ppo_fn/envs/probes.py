"""Probe environments: tiny tasks with known values, each for one capability.

After Andy Jones, *Debugging RL, Without the Agonizing Pain* (2021). An agent that
cannot solve one of them has its fault in the capability that this probe adds to
the ones before: predict a value, predict it from the observation, discount, act,
act on the observation, remember, and look past a time limit.
"""

from abc import abstractmethod
from typing import final

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float, Int, Key

from ._checks import check_steps
from .types import State


Observations = Float[Array, "*batch {self.observation_size}"]
Values = Float[Array, "*batch"]


@final
class _Hidden(eqx.Module):
    """What a probe knows: its cue, -1 or 1, and the steps since the start."""

    cue: Float[Array, ""]
    time: Int[Array, ""]


class AbstractProbe(eqx.Module):
    """An environment around one cue, -1 or 1, that each reset draws anew.

    There are two actions, 0 and 1. Every episode lasts `max_episode_length` steps;
    `truncates` says whether it is then cut short or terminates. The observation is
    a vector `[observation_size]`, the reward a number.
    """

    action_size = 2
    discrete = True

    observation_size: eqx.AbstractClassVar[int]
    truncates: eqx.AbstractClassVar[bool]
    max_episode_length: eqx.AbstractVar[int]

    @abstractmethod
    def optimal_value(
        self, observation: Observations, discounting_factor: float
    ) -> Values:
        """The exact value of the best policy.

        **Arguments:**

        - `observation`: what the environment shows, `[..., observation_size]`.
        - `discounting_factor`: the discount per step, in [0, 1).

        **Returns:**

        The expected discounted sum of future rewards, `[...]`.
        """

    @abstractmethod
    def _observe(self, hidden: _Hidden) -> Float[Array, " size"]: ...

    @abstractmethod
    def _reward(
        self, hidden: _Hidden, direction: Float[Array, ""]
    ) -> float | Float[Array, ""]: ...

    def reset(self, key: Key[Array, ""]) -> State:
        """Starts an episode.

        **Arguments:**

        - `key`: draws the cue.

        **Returns:**

        The first state.
        """
        hidden = _Hidden(jr.rademacher(key, (), jnp.float32), jnp.zeros((), jnp.int32))
        return State.create(
            hidden, self._observe(hidden), 0.0, terminated=False, truncated=False
        )

    def step(self, state: State, action: int | Int[Array, ""]) -> State:
        """Takes one of the two actions.

        **Arguments:**

        - `state`: the previous state.
        - `action`: 1, or any other integer for the other action.

        **Returns:**

        The next state.
        """
        hidden = state.data
        direction = jnp.where(jnp.asarray(action) == 1, 1.0, -1.0)
        following = _Hidden(hidden.cue, hidden.time + 1)
        ended = following.time >= self.max_episode_length
        return State.create(
            following,
            self._observe(following),
            self._reward(hidden, direction),
            terminated=ended & (not self.truncates),
            truncated=ended & self.truncates,
        )


@final
class ValueProbe(AbstractProbe):
    """Can a constant be learned? One step, always the same observation, reward 1.

    The value is 1, whatever the policy.
    """

    observation_size = 1
    truncates = False
    max_episode_length = 1

    def optimal_value(
        self, observation: Observations, discounting_factor: float
    ) -> Values:
        """1."""
        return jnp.ones(observation.shape[:-1])

    def _observe(self, hidden: _Hidden) -> Float[Array, " size"]:
        return jnp.ones(1)

    def _reward(self, hidden: _Hidden, direction: Float[Array, ""]) -> float:
        return 1.0


@final
class ValueOfObservationProbe(AbstractProbe):
    """Does the value depend on the observation? One step; the observation is the
    cue, and so is the reward.

    The value is the observation, whatever the policy; the mean return is 0.
    """

    observation_size = 1
    truncates = False
    max_episode_length = 1

    def optimal_value(
        self, observation: Observations, discounting_factor: float
    ) -> Values:
        """The observation itself."""
        return observation[..., 0]

    def _observe(self, hidden: _Hidden) -> Float[Array, " size"]:
        return hidden.cue[None]

    def _reward(self, hidden: _Hidden, direction: Float[Array, ""]) -> Float[Array, ""]:
        return hidden.cue


@final
class DiscountingProbe(AbstractProbe):
    """Does a reward reach back in time? Two steps; the observation is 0, then 1, and
    only the second step is rewarded with 1.

    The value is the discounting factor at the first observation and 1 at the
    second, whatever the policy; the return is 1.
    """

    observation_size = 1
    truncates = False
    max_episode_length = 2

    def optimal_value(
        self, observation: Observations, discounting_factor: float
    ) -> Values:
        """The discounting factor where the observation is 0, 1 where it is 1."""
        return jnp.where(observation[..., 0] == 0, discounting_factor, 1.0)

    def _observe(self, hidden: _Hidden) -> Float[Array, " size"]:
        return hidden.time[None].astype(jnp.float32)

    def _reward(self, hidden: _Hidden, direction: Float[Array, ""]) -> Float[Array, ""]:
        return hidden.time.astype(jnp.float32)


@final
class ActionProbe(AbstractProbe):
    """Does the policy find the better action? One step, always the same
    observation; action 1 is rewarded with 1, action 0 with -1.

    The best return and its value are 1.
    """

    observation_size = 1
    truncates = False
    max_episode_length = 1

    def optimal_value(
        self, observation: Observations, discounting_factor: float
    ) -> Values:
        """1."""
        return jnp.ones(observation.shape[:-1])

    def _observe(self, hidden: _Hidden) -> Float[Array, " size"]:
        return jnp.ones(1)

    def _reward(self, hidden: _Hidden, direction: Float[Array, ""]) -> Float[Array, ""]:
        return direction


@final
class ActionOfObservationProbe(AbstractProbe):
    """Does the action depend on the observation? One step; the observation is the
    cue, the reward 1 for action 1 at a positive and action 0 at a negative cue, and
    -1 otherwise.

    The best return and its value are 1; a policy that ignores the observation gets
    0 on average.
    """

    observation_size = 1
    truncates = False
    max_episode_length = 1

    def optimal_value(
        self, observation: Observations, discounting_factor: float
    ) -> Values:
        """1."""
        return jnp.ones(observation.shape[:-1])

    def _observe(self, hidden: _Hidden) -> Float[Array, " size"]:
        return hidden.cue[None]

    def _reward(self, hidden: _Hidden, direction: Float[Array, ""]) -> Float[Array, ""]:
        return hidden.cue * direction


@final
class MemoryProbe(AbstractProbe):
    """Is the past remembered? The cue is shown at the first step only, and at the
    last step the action must match it: reward 1 if it does, -1 if not, and 0 at all
    steps before.

    The observation is (the cue at the first step and 0 later, the fraction of the
    episode that has passed). The best return is 1; a policy without memory gets 0
    on average, whatever it does.

    **Arguments:**

    - `max_episode_length`: steps from the cue to the answer, both included.

    **Raises:**

    `ValueError` if `max_episode_length` is less than 2.
    """

    observation_size = 2
    truncates = False

    max_episode_length: int = eqx.field(static=True, default=4)

    def __check_init__(self):
        check_steps(self, "max_episode_length", self.max_episode_length, at_least=2)

    def optimal_value(
        self, observation: Observations, discounting_factor: float
    ) -> Values:
        """The discounting factor to the power of the steps before the answer."""
        passed = jnp.round(observation[..., 1] * self.max_episode_length)
        return discounting_factor ** (self.max_episode_length - 1 - passed)

    def _observe(self, hidden: _Hidden) -> Float[Array, " size"]:
        shown = jnp.where(hidden.time == 0, hidden.cue, 0.0)
        passed = hidden.time.astype(jnp.float32) / self.max_episode_length
        return jnp.stack([shown, passed])

    def _reward(self, hidden: _Hidden, direction: Float[Array, ""]) -> Float[Array, ""]:
        is_asked = hidden.time == self.max_episode_length - 1
        return jnp.where(is_asked, hidden.cue * direction, 0.0)


@final
class TruncationProbe(AbstractProbe):
    """Is a time limit told from an end? The observation is always the same and each
    step is rewarded with 1; a time limit cuts the episode short, but nothing ever
    terminates.

    The value is `1 / (1 - discounting_factor)` at every step, whatever the policy.
    Taking the limit for an end gives at most the number of steps that are left.

    **Arguments:**

    - `max_episode_length`: the time limit in steps.

    **Raises:**

    `ValueError` if `max_episode_length` is less than 1.
    """

    observation_size = 1
    truncates = True

    max_episode_length: int = eqx.field(static=True, default=4)

    def __check_init__(self):
        check_steps(self, "max_episode_length", self.max_episode_length)

    def optimal_value(
        self, observation: Observations, discounting_factor: float
    ) -> Values:
        """`1 / (1 - discounting_factor)`."""
        return jnp.full(observation.shape[:-1], 1 / (1 - discounting_factor))

    def _observe(self, hidden: _Hidden) -> Float[Array, " size"]:
        return jnp.ones(1)

    def _reward(self, hidden: _Hidden, direction: Float[Array, ""]) -> float:
        return 1.0


@final
class CountingProbe(AbstractProbe):
    """Where in the episode are we? The observation is the number of steps since the
    reset, each step is rewarded with 1, and a time limit cuts the episode short.

    Shows at a glance which step, reset or final observation a piece of experience
    came from. The value is `1 / (1 - discounting_factor)` at every step, whatever the
    policy.

    **Arguments:**

    - `max_episode_length`: the time limit in steps.

    **Raises:**

    `ValueError` if `max_episode_length` is less than 1.
    """

    observation_size = 1
    truncates = True

    max_episode_length: int = eqx.field(static=True, default=5)

    def __check_init__(self):
        check_steps(self, "max_episode_length", self.max_episode_length)

    def optimal_value(
        self, observation: Observations, discounting_factor: float
    ) -> Values:
        """`1 / (1 - discounting_factor)`."""
        return jnp.full(observation.shape[:-1], 1 / (1 - discounting_factor))

    def _observe(self, hidden: _Hidden) -> Float[Array, " size"]:
        return hidden.time[None].astype(jnp.float32)

    def _reward(self, hidden: _Hidden, direction: Float[Array, ""]) -> float:
        return 1.0
