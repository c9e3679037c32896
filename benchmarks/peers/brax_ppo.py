"""Brax's PPO: whole steps of the MLP."""

import contextlib
import queue
import threading
from collections.abc import Sequence
from typing import Any
from unittest import mock

import flax.linen as linen
import jax
import jax.numpy as jnp
from brax.envs.base import Env, State
from brax.training.agents.ppo import networks as brax_networks, train as brax_train
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from nnx_ppo_fn import PPOConfig

from ..networks import ENTROPY_WEIGHT, TOWERS
from ..programs import Program
from ..ring import ACTION_SIZE, EPISODE_LENGTH, move, OBSERVATION_SIZE, start
from ..settings import Cell, EPOCHS, MINIBATCHES
from .borders import as_released


MEASURES = ("step",)
NETWORKS = ("mlp",)

ITERATIONS = 4
"""Iterations in one compiled call, so that what Brax does between calls weighs less."""

_CALLS = 100_000
_DEFAULTS = PPOConfig()


class _Ring(Env):
    """The environment as Brax sees it."""

    observation_size = OBSERVATION_SIZE  # pyright: ignore
    action_size = ACTION_SIZE  # pyright: ignore
    backend = "none"  # pyright: ignore

    def reset(self, rng: jax.Array) -> State:
        place = start(rng)
        zero = jnp.zeros((), jnp.float32)
        return State(place, place.numbers, zero, zero)  # pyright: ignore

    def step(self, state: State, action: jax.Array) -> State:
        place, reward, ended = move(state.pipeline_state, action)  # pyright: ignore
        return state.replace(  # pyright: ignore
            pipeline_state=place,
            obs=place.numbers,
            reward=reward,
            done=ended.astype(jnp.float32),
        )


def _network(observation_size: Any, action_size: int, **options: Any) -> Any:
    return brax_networks.make_ppo_networks(
        observation_size,
        action_size,
        policy_hidden_layer_sizes=TOWERS,
        value_hidden_layer_sizes=TOWERS,
        activation=linen.relu,
        **options,
    )


class _Enough(Exception):
    """Ends Brax's training."""


def _device_put_replicated(tree: Any, devices: Sequence[Any]) -> Any:
    """What `jax.device_put_replicated` did: Brax calls it, and JAX 0.10 dropped it."""
    everywhere = NamedSharding(Mesh(devices, "copies"), PartitionSpec("copies"))
    return jax.tree_util.tree_map(
        lambda leaf: jax.device_put(jnp.stack([leaf] * len(devices)), everywhere), tree
    )


def _with_what_brax_calls() -> contextlib.AbstractContextManager[Any]:
    """A JAX that Brax can train with, whatever the version."""
    if hasattr(jax, "device_put_replicated"):
        return contextlib.nullcontext()
    return mock.patch.object(
        jax, "device_put_replicated", _device_put_replicated, create=True
    )


class BraxPPO:
    """Brax's own training loop, stopped after each of its compiled calls.

    It has no function for one step, but tells of every call. It runs in a thread, which
    waits until the next call is asked for.
    """

    def __init__(self, cell: Cell):
        """Prepares the loop, which does not run yet."""
        self.cell = cell
        self._may_go_on = threading.Semaphore(0)
        self._told: queue.Queue[float | BaseException] = queue.Queue()
        self._ended = False
        self._walltime = 0.0
        self._thread = threading.Thread(target=self._train, daemon=True)
        with as_released():
            network = _network(OBSERVATION_SIZE, ACTION_SIZE)
            key = jax.random.PRNGKey(0)
            trained = (
                network.policy_network.init(key),
                network.value_network.init(key),
            )
        self.parameters = sum(leaf.size for leaf in jax.tree_util.tree_leaves(trained))

    def program(self, measure: str) -> Program:
        """What is timed, by Brax's own clock: it runs while a call does."""
        assert measure == "step"
        return Program(self._call, ITERATIONS * self.cell.steps)

    def close(self) -> None:
        """Ends the thread."""
        if self._thread.is_alive():
            self._ended = True
            self._may_go_on.release()
            self._thread.join()

    def _call(self) -> float:
        if not self._thread.is_alive():
            self._thread.start()
        self._may_go_on.release()
        told = self._told.get()
        if isinstance(told, BaseException):
            raise told
        return told

    def _progress(self, _: int, metrics: Any) -> None:
        walltime = float(metrics["training/walltime"])
        self._told.put(walltime - self._walltime)
        self._walltime = walltime
        self._wait()

    def _wait(self) -> None:
        self._may_go_on.acquire()
        if self._ended:
            raise _Enough

    def _train(self) -> None:
        try:
            with as_released(), _with_what_brax_calls():
                self._wait()
                self._run_brax()
        except _Enough:
            pass
        except BaseException as error:
            self._told.put(error)

    def _run_brax(self) -> None:
        brax_train.train(
            environment=_Ring(),
            num_timesteps=_CALLS * ITERATIONS * self.cell.steps,
            num_evals=_CALLS + 1,
            run_evals=False,
            num_eval_envs=1,
            num_envs=self.cell.environments,
            episode_length=EPISODE_LENGTH,
            unroll_length=self.cell.rollout_length,
            batch_size=self.cell.environments // MINIBATCHES,
            num_minibatches=MINIBATCHES,
            num_updates_per_batch=EPOCHS,
            learning_rate=float(_DEFAULTS.learning_rate),
            entropy_cost=ENTROPY_WEIGHT,
            discounting=float(_DEFAULTS.discounting_factor),
            gae_lambda=float(_DEFAULTS.gae_lambda),
            clipping_epsilon=float(_DEFAULTS.clip_range),
            vf_loss_coefficient=float(_DEFAULTS.critic_loss_weight),
            normalize_observations=True,
            network_factory=_network,  # pyright: ignore[reportArgumentType]
            progress_fn=self._progress,
        )


def open(cell: Cell) -> BraxPPO:
    """Prepares a cell."""
    return BraxPPO(cell)
