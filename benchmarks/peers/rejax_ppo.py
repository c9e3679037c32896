"""rejax's PPO: whole steps of the MLP."""

from importlib import import_module
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from gymnax.environments import spaces

from nnx_ppo_fn import PPOConfig

from ..networks import ENTROPY_WEIGHT, TOWERS
from ..playing import Policy
from ..programs import Program
from ..ring import ACTION_SIZE, EPISODE_LENGTH, move, OBSERVATION_SIZE, Place, start
from ..settings import Cell
from ..timing import timed
from .borders import as_released


MEASURES = ("step",)
NETWORKS = ("mlp",)

# By name, since whoever checks types may have to do without it.
_ALGORITHM: Any = import_module("rejax").PPO


class _Parameters(NamedTuple):
    max_steps_in_episode: int = EPISODE_LENGTH


class Ring:
    """The environment as rejax sees it: it starts anew by itself, as gymnax's do."""

    default_params = _Parameters()

    def observation_space(self, params: Any) -> Any:
        """Any numbers."""
        del params
        return spaces.Box(-np.inf, np.inf, (OBSERVATION_SIZE,))

    def action_space(self, params: Any) -> Any:
        """Where rejax clips actions."""
        del params
        return spaces.Box(-1.0, 1.0, (ACTION_SIZE,))

    def reset(self, key: Any, params: Any) -> tuple[Any, Place]:
        """Starts an episode."""
        del params
        place = start(key)
        return place.numbers, place

    def step(self, key: Any, state: Place, action: Any, params: Any) -> Any:
        """Turns the ring, and starts the next episode where one ends."""
        del params
        moved, reward, ended = move(state, action)
        place = jax.tree_util.tree_map(
            lambda fresh, old: jnp.where(ended, fresh, old), start(key), moved
        )
        return place.numbers, place, reward, ended, {}


def create(config: PPOConfig, env: Ring) -> Any:
    """The algorithm, with an environment and the settings of all libraries."""
    return _ALGORITHM.create(
        env=env,
        agent_kwargs={"hidden_layer_sizes": TOWERS, "activation": "relu"},
        num_envs=config.n_envs,
        num_steps=config.rollout_length,
        num_epochs=config.n_epochs,
        num_minibatches=config.n_minibatches,
        normalize_observations=True,
        learning_rate=float(config.learning_rate),
        gamma=float(config.discounting_factor),
        gae_lambda=float(config.gae_lambda),
        clip_eps=float(config.clip_range),
        vf_coef=float(config.critic_loss_weight),
        ent_coef=ENTROPY_WEIGHT,
    )


class RejaxPPO:
    """rejax's training iteration, compiled by itself."""

    def __init__(self, cell: Cell):
        """Makes the algorithm and the state that training starts from."""
        self.cell = cell
        with as_released():
            self._algorithm = create(cell.config, Ring())
            self._state = self._algorithm.init_state(jr.key(0))
        trained = (self._state.actor_ts.params, self._state.critic_ts.params)
        self.parameters = sum(leaf.size for leaf in jax.tree_util.tree_leaves(trained))

    def program(self, measure: str) -> Program:
        """What is timed; it compiles in its first call."""
        assert measure == "step"
        iterate = jax.jit(self._algorithm.train_iteration, donate_argnums=0)

        def call() -> Any:
            self._state = iterate(self._state)
            return self._state

        time_call = timed(call)

        def as_it_is_released() -> float:
            with as_released():
                return time_call()

        return Program(as_it_is_released, self.cell.steps)

    def close(self) -> None:
        """Nothing runs in the background."""


def open(cell: Cell) -> RejaxPPO:
    """Prepares a cell."""
    return RejaxPPO(cell)


def train(algorithm: Any, config: PPOConfig, seed: int) -> Any:
    """The state after a whole training."""
    iterations = config.total_steps // config.steps_per_iteration
    return jax.jit(
        lambda key: jax.lax.fori_loop(
            0,
            iterations,
            lambda _, state: algorithm.train_iteration(state),
            algorithm.init_state(key),
        )
    )(jr.key(seed))


@as_released()
def learn(config: PPOConfig, seed: int) -> Policy:
    """The mean action after a training, within what the environment takes."""
    algorithm = create(config, Ring())
    state = train(algorithm, config, seed)

    def mean(actor: Any, observations: Any) -> Any:
        return actor.action_mean(actor.features(observations))

    @as_released()
    def policy(observations: Any) -> Any:
        seen = algorithm.normalize_obs(state.obs_rms_state, observations)
        action = algorithm.actor.apply(state.actor_ts.params, seen, method=mean)
        return jnp.clip(action, -1.0, 1.0)

    return policy
