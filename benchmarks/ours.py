"""This library's programs."""

import dataclasses
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
from .programs import compile_program, Compiled, Program
from .ring import Ring
from .settings import Cell
from .storage import storage_of
from .timing import feeding_back, Timed, timed


NAME = "nnx_ppo_fn"


class Ours:
    """The programs of one cell, compiled when they are asked for."""

    def __init__(self, cell: Cell):
        """Makes the network and the state that training starts from."""
        self.cell = cell
        self.env = Ring()
        self.config = TrainConfig(ppo=cell.config)
        network = NETWORKS[cell.network](jr.key(0))
        self.state: TrainingState = new_training_state(
            self.env, network, self.config, key=jr.key(1)
        )

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

    def close(self) -> None:
        """Nothing runs in the background."""

    def _compiled_rollout(self) -> Compiled:
        return compile_program(
            self._unroll, self.state.rollout_state, *self._network_arrays()
        )

    def _rollout(self) -> Program:
        unroll = self._compiled_rollout()
        state = self.state.rollout_state
        call = feeding_back(unroll.run, state, *self._network_arrays())
        return self._program(call, unroll)

    def _replay(self) -> Program:
        _, rollout = self._compiled_rollout().run(
            self.state.rollout_state, *self._network_arrays()
        )

        def loss_and_gradient(parameters: Any, constants: Any, rollout: Any) -> Any:
            def loss(parameters: Any) -> Any:
                network = self._network(parameters, constants)
                return ppo_loss(network, rollout, self.config.ppo)

            return jax.value_and_grad(loss, has_aux=True)(parameters)

        arguments = (*self._network_arrays(), rollout)
        replay = compile_program(loss_and_gradient, *arguments, trains=True)
        return self._program(timed(lambda: replay.run(*arguments)), replay)

    def _step(self) -> Program:
        arguments = (self.state.rollout_state, *self._network_arrays())
        _, rollout = jax.eval_shape(self._unroll, *arguments)
        compiled = self._compiled_step(self.state, self.config)
        call = feeding_back(compiled.run, self.state, self.config)
        storage = storage_of(compiled.run, rollout)
        return self._program(call, compiled)._replace(storage=storage)

    def _spread(self) -> Program:
        devices = jax.device_count()
        ppo = dataclasses.replace(self.config.ppo, n_shards=devices)
        config = dataclasses.replace(self.config, ppo=ppo)
        mesh = jax.make_mesh((devices,), ("environments",))
        state = on_mesh(self.state, mesh)
        compiled = self._compiled_step(state, config)
        return self._program(feeding_back(compiled.run, state, config), compiled)

    def _compiled_step(self, state: TrainingState, config: TrainConfig) -> Compiled:
        def step(state: Any, config: Any) -> Any:
            return ppo_step(self.env, state, config)

        return compile_program(step, state, config, donated=0, trains=True)

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
        played = compile_program(play, *arguments, trips=self.cell.rollout_length)
        return self._program(timed(lambda: played.run(*arguments)), played)

    def _program(self, call: Timed, compiled: Compiled) -> Program:
        return Program(call, self.cell.steps, compiled.cost, compiled.products)

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
