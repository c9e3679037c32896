"""The records that PPO passes on: transitions, rollouts, and the training state."""

import dataclasses
import enum
from typing import Any, final, TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.tree_util as jtu
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Key, UInt8

from .._counter import Counter
from .._custom_types import Keys, PyTree
from .._tree import take
from ..envs import EnvState as EnvState, RLEnv as RLEnv
from ..networks._trainable import partition_trainable
from ..networks.types import AnyModule, PPONetworkOutput


Metrics: TypeAlias = dict[str, int | float]
"""Numbers on the host, by name."""


class LoggingLevel(enum.Flag):
    """Which groups of metrics `ppo_step` computes; combine them with `|`."""

    LOSSES = enum.auto()
    CRITIC_EXTRA = enum.auto()
    ACTOR_EXTRA = enum.auto()
    ROLLOUT_STATS = enum.auto()
    ROLLOUT_OBS = enum.auto()
    ENV_METRICS = enum.auto()
    NETWORK_METRICS = enum.auto()
    GRAD_NORM = enum.auto()
    WEIGHTS = enum.auto()
    THROUGHPUT = enum.auto()
    BASIC = LOSSES
    # Whole observations are costly to summarise, so they are asked for by name.
    ALL = (
        LOSSES
        | CRITIC_EXTRA
        | ACTOR_EXTRA
        | ROLLOUT_STATS
        | ENV_METRICS
        | NETWORK_METRICS
        | GRAD_NORM
        | WEIGHTS
        | THROUGHPUT
    )
    NONE = 0


@final
class Transition(eqx.Module):
    """What happened in one step; in a `Rollout`, leaves have axes `[T, B, ...]`.

    - `obs`: the observation that the network saw.
    - `network_output`: its actions, log-likelihoods and values.
    - `rewards`: an array, or a tree with one entry per kind of reward.
    - `done`: the episode ended with this step, for whatever reason.
    - `truncated`: it was cut by a time limit, and not terminated.
    - `bootstrap_value`: the critic's value of the observation after the step, where
      the next step's value does not stand for it: after a truncated step, and after
      the rollout's last. 0 elsewhere.
    - `metrics`: of the environment (`"env"`), of the network (`"net"`), and return and
      length of the running episode (`"episode"`).
    - `rollout_extras`: what the replay gives back to the modules.
    """

    obs: PyTree
    network_output: PPONetworkOutput
    rewards: PyTree
    done: Bool[Array, "..."]
    truncated: Bool[Array, "..."]
    bootstrap_value: PyTree
    metrics: dict[str, Any]
    rollout_extras: PyTree


@final
class Rollout(eqx.Module):
    """`T` steps of `B` environments, with all that a replay needs.

    - `initial_carry`: the network's carry before the first step, `[B, ...]`.
    - `is_first`: where a step begins an episode: the carry is reset before it.
    - `transitions`: leaves `[T, B, ...]`.
    - `last_observation`: what follows the last step, `[B, ...]`; a fresh start where
      the episode ended.
    """

    initial_carry: PyTree
    is_first: Bool[Array, "T B"]
    transitions: Transition
    last_observation: PyTree

    def minibatch(self, indices: Int[Array, "*minibatch"]) -> "Rollout":
        """The rollout of some environments alone.

        **Arguments:**

        - `indices`: which ones, `[n]`; or which of each group of neighbours, where
          environments are in groups of the same size, `[groups, n]`.
        """
        return Rollout(
            take(self.initial_carry, indices, axis=0),
            take(self.is_first, indices, axis=1),
            take(self.transitions, indices, axis=1),
            take(self.last_observation, indices, axis=0),
        )


@final
class RolloutState(eqx.Module):
    """What goes from one rollout to the next, leaves `[B, ...]`.

    - `env_state`: the environments.
    - `carry`: the network's carry after the last step, not yet reset.
    - `is_first`: which environments begin an episode with the next step.
    - `keys`: the chain that each environment's resets come from.
    - `episode_return`, `episode_length`: of the episodes under way.
    """

    env_state: PyTree
    carry: PyTree
    is_first: Bool[Array, " B"]
    keys: Keys
    episode_return: Float[Array, " B"]
    episode_length: Int[Array, " B"]


class Status(enum.IntEnum):
    """Why training stopped; `TrainingState.status` holds the number."""

    HEALTHY = 0
    REWARD_NOT_FINITE = 1
    OBSERVATION_NOT_FINITE = 2
    REPLAY_MISMATCH = 3
    UPDATE_NOT_FINITE = 4


@final
@dataclasses.dataclass(frozen=True)
class StaticHalf:
    """What of a network is not an array: its structure, numbers, flags and functions.

    Compared by value, so that an equal network never compiles anew; every leaf with its
    type, since `1`, `1.0` and `True` are equal.
    """

    treedef: Any
    leaves: tuple[tuple[type, Any], ...]

    @staticmethod
    def of(network: PyTree) -> "StaticHalf":
        """Keeps what is not an array of `network`."""
        rest = eqx.filter(network, eqx.is_array, inverse=True)
        leaves, treedef = jtu.tree_flatten(rest)
        return StaticHalf(treedef, tuple((type(leaf), leaf) for leaf in leaves))

    @property
    def tree(self) -> Any:
        """The network with `None` in the place of every array."""
        return jtu.tree_unflatten(self.treedef, [leaf for _, leaf in self.leaves])


@final
class TrainingState(eqx.Module):
    """All of a training run, in arrays: it can be donated, mapped, scanned and saved.

    - `parameters`, `constants`: the network's trainable arrays, and its others.
    - `static`: the rest of the network.
    - `optimizer_state`: of the optimiser.
    - `rollout_state`: environments, carries and their keys.
    - `key`: a chain for what concerns no environment, such as shuffling.
    - `env_steps`: environment steps so far, exact.
    - `status`: 0, or a `Status` that says why training stopped.
    - `fault_environment`: the first environment concerned, or -1.
    """

    parameters: PyTree
    constants: PyTree
    static: StaticHalf = eqx.field(static=True)
    optimizer_state: PyTree
    rollout_state: RolloutState
    key: Key[Array, ""]
    env_steps: Counter
    status: Int[Array, ""]
    fault_environment: Int[Array, ""]

    @property
    def network(self) -> AnyModule:
        """The network as it is now. `equinox.nn.inference_mode` goes on this."""
        return eqx.combine(self.parameters, self.constants, self.static.tree)


@final
@dataclasses.dataclass(frozen=True)
class TrainResult:
    """What a training run leaves.

    - `training_state`: after the last iteration; give it to `train_ppo` as
      `initial_state` to go on.
    - `network`: the trained network.
    - `final_metrics`: of the last iteration, with the last evaluation's.
    - `eval_history`: `{"step": ..., "eval/...": ...}` of every evaluation.
    - `total_steps`: environment steps of the training state, over all environments.
    - `total_iterations`: iterations of this call.
    - `compile_seconds`, `train_seconds`: wall time of compiling the training program,
      and of running it; evaluations are in neither.
    - `fault`: why one of several seeds has stopped by itself; empty if it did not.
    """

    training_state: TrainingState
    network: AnyModule
    final_metrics: Metrics
    eval_history: list[Metrics]
    total_steps: int
    total_iterations: int
    compile_seconds: float
    train_seconds: float
    fault: str = ""


@final
@dataclasses.dataclass(frozen=True)
class VideoData:
    """What `video_fn` is given: one episode to look at.

    - `frames`: one picture per state, the first one the reset's; red, green and blue,
      0 to 255.
    - `step`: environment steps of training so far, over all environments.
    - `episode_reward`: the sum of the episode's rewards.
    - `episode_length`: its steps.
    """

    frames: UInt8[np.ndarray, "frames height width 3"]
    step: int
    episode_reward: float
    episode_length: int


def split_network(network: AnyModule) -> tuple[PyTree, PyTree, StaticHalf]:
    """Cuts a network into `(parameters, constants, static)`; see `TrainingState`."""
    parameters, rest = partition_trainable(network)
    return parameters, eqx.filter(rest, eqx.is_array), StaticHalf.of(network)


def own(tree: PyTree) -> PyTree:
    """A copy of every array, so that donating it deletes nothing of the caller's.

    NumPy arrays become JAX arrays on the way.
    """

    def copy(leaf: Any) -> Any:
        if isinstance(leaf, (jax.Array, np.ndarray, np.generic)):
            return jnp.array(leaf, dtype=leaf.dtype, copy=True)
        return leaf

    return jtu.tree_map(copy, tree)
