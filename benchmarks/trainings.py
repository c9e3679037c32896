"""Trains the agents of a preset, one seed each, a few iterations at a time."""

from collections.abc import Callable
from typing import Any, final

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import jax.tree_util as jtu

from nnx_ppo_fn import new_training_state, ppo_step, presets

from .programs import compile_program


@final
class Trainings:
    """What all ways to train the same agents share; `config` is the preset's."""

    def __init__(self, preset: tuple[str, str], iterations: int):
        """**Arguments:**

        - `preset`: an environment and a policy.
        - `iterations`: of each agent in a call.
        """
        setup = presets.build(*preset, key=jr.key(0))
        self.config = setup.config
        self._env = setup.train_env
        self._arrays, self._static = eqx.partition(setup.network, eqx.is_array)
        self._iterations = iterations

    def begun(self, seeds: int) -> Any:
        """The states of so many agents, leaves `[seeds, ...]`."""

        def begin(key: Any) -> Any:
            network = eqx.combine(self._arrays, self._static)
            return new_training_state(self._env, network, self.config, key=key)

        return jax.jit(jax.vmap(begin))(jr.split(jr.key(1), seeds))

    def iterate(self, state: Any) -> tuple[Any, Any]:
        """All iterations of one agent."""
        return jax.lax.scan(
            lambda state, _: (ppo_step(self._env, state, self.config)[0], None),
            state,
            length=self._iterations,
        )

    def in_a_row(self, states: Any, which: range) -> Callable[[], Any]:
        """A function that takes some agents further, each by the same program.

        **Arguments:**

        - `states`: of `begun`.
        - `which`: rows of them.

        **Returns:**

        A function without arguments, which goes on where its last call ended. It
        returns the new states, one for each of `which`.
        """
        alone = [
            jtu.tree_map(lambda leaf, row=row: jnp.copy(leaf[row]), states)
            for row in which
        ]
        run = compile_program(self.iterate, alone[0], donated=0, trains=True).run

        def take_further() -> Any:
            for place, state in enumerate(alone):
                alone[place], _ = run(state)
            return alone

        return take_further
