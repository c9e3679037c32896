"""This library's programs."""

import dataclasses
import functools as ft
from typing import Any

import equinox as eqx
import jax
import jax.random as jr

from nnx_ppo_fn import (
    EvalConfig,
    evaluate,
    new_training_state,
    on_mesh,
    ppo_loss,
    ppo_step,
    PPOConfig,
    train_ppo,
    TrainConfig,
    TrainingState,
    unroll_env,
)

from .networks import NETWORKS
from .playing import Policy
from .programs import compile_program, Cost, Program
from .ring import Ring
from .settings import Cell
from .storage import Storage, storage_of
from .timing import feeding_back, timed


NAME = "nnx_ppo_fn"


class Ours:
    """The programs of one cell, compiled when they are asked for."""

    name = NAME

    def __init__(self, cell: Cell, *, time_products: bool = False):
        """Makes the network and the state that training starts from.

        **Arguments:**

        - `cell`: which.
        - `time_products`: whether matrix products are timed by themselves as well.
        """
        self.cell = cell
        self.time_products = time_products
        self.env = Ring()
        self.config = TrainConfig(ppo=cell.config)
        network = NETWORKS[cell.network](jr.key(0))
        self.state: TrainingState = new_training_state(
            self.env, network, self.config, key=jr.key(1)
        )
        self.storage: Storage | None = None

    @property
    def parameters(self) -> int:
        """How many numbers are trained."""
        leaves = jax.tree_util.tree_leaves(self.state.parameters)
        return sum(leaf.size for leaf in leaves)

    def program(self, measure: str) -> Program:
        """Compiles what is measured.

        **Arguments:**

        - `measure`: one of `MEASURES`, or `SPREAD`.
        """
        return getattr(self, f"_{measure}")()

    @ft.cached_property
    def _compiled_rollout(self) -> tuple[Any, Cost]:
        return self._compile(
            self._unroll, self.state.rollout_state, *self._network_arrays()
        )

    def _rollout(self) -> Program:
        compiled, cost = self._compiled_rollout
        call = feeding_back(compiled, self.state.rollout_state, *self._network_arrays())
        return Program(call, self.cell.steps, cost)

    def _replay(self) -> Program:
        unroll, _ = self._compiled_rollout
        _, rollout = unroll(self.state.rollout_state, *self._network_arrays())

        def loss_and_gradient(parameters: Any, constants: Any, rollout: Any) -> Any:
            def loss(parameters: Any) -> Any:
                network = self._network(parameters, constants)
                return ppo_loss(network, rollout, self.config.ppo)

            return jax.value_and_grad(loss, has_aux=True)(parameters)

        arguments = (*self._network_arrays(), rollout)
        compiled, cost = self._compile(loss_and_gradient, *arguments, trains=True)
        return Program(timed(lambda: compiled(*arguments)), self.cell.steps, cost)

    def _step(self) -> Program:
        program, compiled = self._compiled_step(self._copy_of_state(), self.config)
        self.storage = storage_of(
            compiled,
            jax.eval_shape(
                self._unroll, self.state.rollout_state, *self._network_arrays()
            )[1],
        )
        return program

    def _spread(self) -> Program:
        devices = jax.device_count()
        ppo = dataclasses.replace(self.config.ppo, n_shards=devices)
        mesh = jax.make_mesh((devices,), ("environments",))
        state = on_mesh(self._copy_of_state(), mesh)
        return self._compiled_step(state, dataclasses.replace(self.config, ppo=ppo))[0]

    def _compiled_step(
        self, state: TrainingState, config: TrainConfig
    ) -> tuple[Program, Any]:
        def step(state: Any, config: Any) -> Any:
            return ppo_step(self.env, state, config)

        compiled, cost = self._compile(step, state, config, donated=0, trains=True)
        call = feeding_back(compiled, state, config)
        return Program(call, self.cell.steps, cost), compiled

    def _copy_of_state(self) -> TrainingState:
        """The first call takes a state's memory, which other programs still need."""
        return jax.tree_util.tree_map(lambda leaf: leaf.copy(), self.state)

    def _evaluation(self) -> Program:
        def play(parameters: Any, constants: Any, key: Any) -> Any:
            return evaluate(
                self.env,
                self._network(parameters, constants),
                key=key,
                n_envs=self.cell.environments,
                max_episode_length=self.cell.rollout_length,
            )

        arguments = (*self._network_arrays(), jr.key(2))
        compiled, cost = self._compile(play, *arguments, trips=self.cell.rollout_length)
        return Program(timed(lambda: compiled(*arguments)), self.cell.steps, cost)

    def _compile(self, *arguments: Any, **options: Any) -> tuple[Any, Cost]:
        return compile_program(*arguments, **options, time_products=self.time_products)

    def _unroll(self, rollout_state: Any, parameters: Any, constants: Any) -> Any:
        network = self._network(parameters, constants)
        return unroll_env(self.env, network, rollout_state, self.cell.rollout_length)

    def _network_arrays(self) -> tuple[Any, Any]:
        return self.state.parameters, self.state.constants

    def _network(self, parameters: Any, constants: Any) -> Any:
        return eqx.combine(parameters, constants, self.state.static.tree)


def learn(config: PPOConfig, seed: int) -> Policy:
    """The mean action after a training."""
    result = train_ppo(
        Ring(),
        NETWORKS["mlp"](jr.key(seed)),
        TrainConfig(ppo=config, eval=EvalConfig(enabled=False), seed=seed),
    )
    network = eqx.nn.inference_mode(result.network)

    def policy(observations: Any) -> Any:
        # Nothing is drawn from these keys in inference.
        keys = jr.split(jr.key(0), len(observations))
        carry = network.initialize_state(keys)
        return network(carry, observations).output.actions

    return policy
