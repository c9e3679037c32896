"""nnx-ppo 0.3.0: all of its networks, in all measures."""

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
from flax import nnx, struct
from nnx_ppo.algorithms import ppo, rollout
from nnx_ppo.algorithms.types import LoggingLevel
from nnx_ppo.networks.adapter import PPOAdapter
from nnx_ppo.networks.containers import Concat, Sequential, Splitter
from nnx_ppo.networks.factories import make_mlp_actor_critic, make_mlp_layers
from nnx_ppo.networks.feedforward import Dense
from nnx_ppo.networks.graph import PopulationGraph
from nnx_ppo.networks.normalizer import Normalizer
from nnx_ppo.networks.recurrent import LSTM
from nnx_ppo.networks.sampling_layers import NormalTanhSampler
from nnx_ppo.networks.utils import Filter, Scale
from nnx_ppo.networks.variational import VariationalBottleneck

from nnx_ppo_fn import PPOConfig

from ..graphs import describe_five
from ..networks import (
    AROUND_LATENTS,
    ENTROPY_WEIGHT,
    HEADS,
    LATENTS,
    MEMORY,
    MIN_STD,
    TOWERS,
)
from ..playing import Policy
from ..programs import MEASURES as ON_ONE_DEVICE, Program, SPREAD
from ..ring import ACTION_SIZE, move, OBSERVATION_SIZE, Place, start
from ..settings import Cell
from ..timing import Timed, timed
from .borders import as_released


@struct.dataclass
class _State:
    data: Place
    obs: Any
    reward: Any
    done: Any
    info: dict[str, Any]
    metrics: dict[str, Any]


class _Ring:
    """The environment as nnx-ppo sees it."""

    def reset(self, rng: Any) -> _State:
        place = start(rng)
        zero = jnp.zeros((), jnp.float32)
        return _State(place, place.numbers, zero, zero, {}, {})

    def step(self, state: _State, action: Any) -> _State:
        place, reward, ended = move(state.data, action)
        return _State(place, place.numbers, reward, ended.astype(jnp.float32), {}, {})


def _sampler(rngs: nnx.Rngs) -> Any:
    return NormalTanhSampler(rngs, entropy_weight=ENTROPY_WEIGHT, min_std=MIN_STD)


def _heads(in_features: int, hidden: tuple[int, ...], rngs: nnx.Rngs) -> PPOAdapter:
    def tower(out_features: int) -> list[Any]:
        sizes = [in_features, *hidden, out_features]
        return make_mlp_layers(sizes, rngs, activation_last_layer=False)

    return PPOAdapter(
        action=Sequential([*tower(2 * ACTION_SIZE), _sampler(rngs)]),
        value=Sequential(tower(1)),
    )


def _mlp(rngs: nnx.Rngs) -> Any:
    return make_mlp_actor_critic(
        OBSERVATION_SIZE,
        ACTION_SIZE,
        list(TOWERS),
        list(TOWERS),
        rngs,
        entropy_weight=ENTROPY_WEIGHT,
        min_std=MIN_STD,
    )


def _lstm(rngs: nnx.Rngs) -> Any:
    return Sequential(
        [
            Normalizer(OBSERVATION_SIZE),
            LSTM(OBSERVATION_SIZE, MEMORY, rngs),
            _heads(MEMORY, HEADS, rngs),
        ]
    )


def _variational(rngs: nnx.Rngs) -> Any:
    sizes = [OBSERVATION_SIZE, *AROUND_LATENTS]
    return Sequential(
        [
            Normalizer(OBSERVATION_SIZE),
            *make_mlp_layers(sizes, rngs),
            Dense(sizes[-1], 2 * LATENTS, rngs),
            VariationalBottleneck(LATENTS, rngs, kl_weight=1e-3),
            _heads(LATENTS, AROUND_LATENTS, rngs),
        ]
    )


def _entry(name: str) -> list[Any]:
    return [Filter({name: name}), Concat({name: Scale(1.0)})]


def _graph(rngs: nnx.Rngs) -> Any:
    graph = PopulationGraph(rngs)
    describe_five(graph, senses=OBSERVATION_SIZE, size=MEMORY, action_size=ACTION_SIZE)
    graph.finalize()
    return Sequential(
        [
            Normalizer(OBSERVATION_SIZE),
            Splitter(senses=OBSERVATION_SIZE),
            graph,
            PPOAdapter(
                action=Sequential([*_entry("motor"), _sampler(rngs)]),
                value=Sequential(_entry("value")),
            ),
        ]
    )


_NETWORKS: Mapping[str, Callable[[nnx.Rngs], Any]] = {
    "mlp": _mlp,
    "lstm": _lstm,
    "variational": _variational,
    "graph": _graph,
}
MEASURES = (*ON_ONE_DEVICE, SPREAD)

NETWORKS = tuple(_NETWORKS)


_compiled_step = nnx.jit(
    ppo.ppo_step, static_argnums=(0, 2, 3, 6, 7, 8, 9, 10, 11, 12, 13)
)


def _step(env: _Ring, state: Any, config: PPOConfig) -> tuple[Any, Any]:
    return _compiled_step(
        env,
        state,
        config.n_envs,
        config.rollout_length,
        config.gae_lambda,
        config.discounting_factor,
        config.clip_range,
        config.normalize_advantages,
        config.combine_advantages,
        config.n_epochs,
        config.n_minibatches,
        config.critic_loss_weight,
        LoggingLevel.LOSSES,
        None,
    )


class NNXPPO:
    """The programs of one cell, compiled by nnx-ppo as its own training does it."""

    def __init__(self, cell: Cell):
        """Makes the network and the state that training starts from."""
        self.cell = cell
        self.config = cell.config
        self.env = _Ring()
        with as_released():
            network = _NETWORKS[cell.network](nnx.Rngs(0))
            parameters = nnx.split(network, nnx.Param, ...)[1]
            self.parameters = sum(p.size for p in jax.tree_util.tree_leaves(parameters))

    def program(self, measure: str) -> Program:
        """What is timed; it compiles in its first two calls.

        It has no way to use several devices, so that `SPREAD` is its step on one.
        """
        measure = "step" if measure == SPREAD else measure
        with as_released():
            # Each measure has a network of its own: calls write into it.
            state = ppo.new_training_state(
                self.env,
                _NETWORKS[self.cell.network](nnx.Rngs(0)),
                self.cell.environments,
                seed=0,
                learning_rate=float(self.config.learning_rate),
            )
            call: Timed = getattr(self, f"_{measure}")(state)

        def as_it_is_released() -> float:
            with as_released():
                return call()

        return Program(as_it_is_released, self.cell.steps)

    def close(self) -> None:
        """Nothing runs in the background."""

    def _rollout(self, state: Any) -> Timed:
        unroll = nnx.jit(rollout.unroll_env, static_argnums=(0, 4))
        carry = (state.env_states, state.network_states)
        key = jr.key(1)

        def call() -> Any:
            nonlocal carry
            env_states, network_states = carry
            network_states, env_states, data = unroll(
                self.env,
                env_states,
                state.networks,
                network_states,
                self.cell.rollout_length,
                key,
            )
            carry = env_states, network_states
            return carry, data

        return timed(call)

    def _replay(self, state: Any) -> Timed:
        unroll = nnx.jit(rollout.unroll_env, static_argnums=(0, 4))
        _, _, data = unroll(
            self.env,
            state.env_states,
            state.networks,
            state.network_states,
            self.cell.rollout_length,
            jr.key(1),
        )

        def loss_and_gradient(networks: Any, network_states: Any, data: Any) -> Any:
            return nnx.value_and_grad(ppo.ppo_loss, has_aux=True)(
                networks,
                network_states,
                data,
                self.config.clip_range,
                self.config.normalize_advantages,
                self.config.combine_advantages,
                self.config.discounting_factor,
                self.config.gae_lambda,
                self.config.critic_loss_weight,
                LoggingLevel.LOSSES,
            )

        compiled = nnx.jit(loss_and_gradient)
        return timed(lambda: compiled(state.networks, state.network_states, data))

    def _step(self, state: Any) -> Timed:
        def call() -> Any:
            nonlocal state
            state, metrics = _step(self.env, state, self.config)
            return state.steps_taken, metrics

        return timed(call)

    def _evaluation(self, state: Any) -> Timed:
        play = nnx.jit(rollout.eval_rollout, static_argnums=(0, 2, 3, 5, 6))
        state.networks.eval()
        key = jr.key(2)
        return timed(
            lambda: play(
                self.env,
                state.networks,
                self.cell.environments,
                self.cell.rollout_length,
                key,
                None,
                LoggingLevel.NONE,
            )
        )


def open(cell: Cell) -> NNXPPO:
    """Prepares a cell."""
    return NNXPPO(cell)


@as_released()
def learn(config: PPOConfig, seed: int) -> Policy:
    """The mean action after a training."""
    env = _Ring()
    state = ppo.new_training_state(
        env,
        _mlp(nnx.Rngs(seed)),
        config.n_envs,
        seed=seed,
        learning_rate=float(config.learning_rate),
    )
    for _ in range(config.total_steps // config.steps_per_iteration):
        state, _ = _step(env, state, config)
    state.networks.eval()
    # A copy for each call: it writes down how many random numbers were drawn.
    graph, variables = nnx.split(state.networks)

    @as_released()
    def policy(observations: Any) -> Any:
        network = nnx.merge(graph, variables, copy=True)
        carry = network.initialize_state(len(observations))
        return network(carry, observations).output.actions

    return policy
