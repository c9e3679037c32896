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
from brax.envs.wrappers.training import AutoResetWrapper, EpisodeWrapper, VmapWrapper
from brax.training import distribution
from brax.training.agents.ppo import networks as brax_networks, train as brax_train
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from nnx_ppo_fn import PPOConfig

from ..networks import ENTROPY_WEIGHT, MIN_STD, TOWERS
from ..playing import Policy
from ..programs import Program
from ..ring import ACTION_SIZE, EPISODE_LENGTH, move, OBSERVATION_SIZE, start
from ..settings import Cell
from .borders import as_released


MEASURES = ("step",)
NETWORKS = ("mlp",)

ITERATIONS = 4
"""Iterations in one compiled call, so that what Brax does between calls weighs less."""

_CALLS = 100_000


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
    networks = brax_networks.make_ppo_networks(
        observation_size,
        action_size,
        policy_hidden_layer_sizes=TOWERS,
        value_hidden_layer_sizes=TOWERS,
        activation=linen.relu,
        **options,
    )
    sampler = distribution.NormalTanhDistribution(action_size, min_std=MIN_STD)
    return networks.replace(  # pyright: ignore[reportAttributeAccessIssue]
        parametric_action_distribution=sampler
    )


class _FreshStarts(AutoResetWrapper):
    """Brax's own restart, but from a new state instead of the cached first one."""

    def reset(self, rng: jax.Array) -> State:
        rng, starts = _split_each(rng)
        state = super().reset(starts)
        state.info["restart"] = rng
        return state

    def step(self, state: State, action: jax.Array) -> State:
        rng, starts = _split_each(state.info["restart"])
        fresh = self.env.reset(starts)
        state.info.update(
            restart=rng,
            first_pipeline_state=fresh.pipeline_state,
            first_obs=fresh.obs,
        )
        return super().step(state, action)


def _split_each(rng: jax.Array) -> tuple[jax.Array, jax.Array]:
    keys = jax.vmap(jax.random.split)(rng)
    return keys[:, 0], keys[:, 1]


def _with_fresh_starts(env: Env, episode_length: int, **_: Any) -> Env:
    return _FreshStarts(EpisodeWrapper(VmapWrapper(env), episode_length, 1))


def _learned(config: PPOConfig, **options: Any) -> Any:
    return brax_train.train(
        environment=_Ring(),
        run_evals=False,
        num_eval_envs=1,
        num_envs=config.n_envs,
        episode_length=EPISODE_LENGTH,
        max_devices_per_host=1,
        unroll_length=config.rollout_length,
        batch_size=config.n_envs // config.n_minibatches,
        num_minibatches=config.n_minibatches,
        num_updates_per_batch=config.n_epochs,
        learning_rate=float(config.learning_rate),
        entropy_cost=ENTROPY_WEIGHT,
        discounting=float(config.discounting_factor),
        gae_lambda=float(config.gae_lambda),
        clipping_epsilon=float(config.clip_range),
        vf_loss_coefficient=float(config.critic_loss_weight),
        normalize_observations=True,
        network_factory=_network,  # pyright: ignore[reportArgumentType]
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
        _learned(
            self.cell.config,
            num_timesteps=_CALLS * ITERATIONS * self.cell.steps,
            num_evals=_CALLS + 1,
            progress_fn=self._progress,
        )


def open(cell: Cell) -> BraxPPO:
    """Prepares a cell."""
    return BraxPPO(cell)


@as_released()
def learn(config: PPOConfig, seed: int) -> Policy:
    """The most likely action after a training in which every episode starts afresh."""
    with _with_what_brax_calls():
        make_policy, parameters, _ = _learned(
            config,
            num_timesteps=config.total_steps,
            num_evals=1,
            wrap_env_fn=_with_fresh_starts,
            seed=seed,
        )
    act = make_policy(parameters, deterministic=True)

    @as_released()
    def policy(observations: Any) -> Any:
        return act(observations, jax.random.key(0))[0]

    return policy
