"""Trains many agents side by side, and as many one after another."""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import jax.tree_util as jtu

from nnx_ppo_fn import new_training_state, ppo_step, presets

from .programs import compile_program
from .timing import feeding_back, Spread, take_turns, timed


ENVIRONMENT = "hidden-cartpole"
POLICY = "lstm"
STEPS_TO_BALANCE = 115_000
"""Environment steps after which an agent balances as long as it may."""


class Agents(NamedTuple):
    """Agents that are trained with one seed each.

    - `environment`, `policy`: the preset's names.
    - `seeds`: how many.
    - `steps`: environment steps that an agent is trained for.
    - `side_by_side`, `one_by_one`: agents per minute by `jax.vmap`, and in a row.
    - `ratio`: seconds side by side as a part of those in a row.
    """

    environment: str
    policy: str
    seeds: int
    steps: int
    side_by_side: Spread
    one_by_one: Spread
    ratio: Spread


def measure_agents(
    seeds: int, *, iterations: int, repeats: int, seconds: float
) -> Agents:
    """Times some iterations of both ways, in turns.

    **Arguments:**

    - `seeds`: agents.
    - `iterations`: of each; all iterations of a training take equally long.
    - `repeats`, `seconds`: as for `take_turns`.
    """
    setup = presets.build(ENVIRONMENT, POLICY, key=jr.key(0))
    env, config = setup.train_env, setup.config
    arrays, static = eqx.partition(setup.network, eqx.is_array)

    def begin(key: Any) -> Any:
        network = eqx.combine(arrays, static)
        return new_training_state(env, network, config, key=key)

    def iterate(state: Any) -> tuple[Any, Any]:
        return jax.lax.scan(
            lambda state, _: (ppo_step(env, state, config)[0], None),
            state,
            length=iterations,
        )

    keys = jr.split(jr.key(1), seeds)
    all_states = jax.jit(jax.vmap(begin))(keys)
    states = [
        jtu.tree_map(lambda leaf, seed=seed: jnp.copy(leaf[seed]), all_states)
        for seed in range(seeds)
    ]
    together, _ = compile_program(jax.vmap(iterate), all_states, donated=0)
    alone, _ = compile_program(iterate, states[0], donated=0)

    def in_a_row() -> Any:
        for seed in range(seeds):
            states[seed], _ = alone(states[seed])
        return states

    timings = take_turns(
        {
            "side by side": feeding_back(together, all_states),
            "one by one": timed(in_a_row),
        },
        repeats=repeats,
        seconds=seconds,
    )
    side_by_side = timings["side by side"].calls
    one_by_one = timings["one by one"].calls
    per_iteration = config.ppo.steps_per_iteration
    whole = -(-STEPS_TO_BALANCE // per_iteration)
    agents_per_minute = 60 * seeds * iterations / whole
    return Agents(
        environment=ENVIRONMENT,
        policy=POLICY,
        seeds=seeds,
        steps=whole * per_iteration,
        side_by_side=Spread.of([agents_per_minute / call for call in side_by_side]),
        one_by_one=Spread.of([agents_per_minute / call for call in one_by_one]),
        ratio=Spread.of(
            [
                together / in_row
                for together, in_row in zip(side_by_side, one_by_one, strict=True)
            ]
        ),
    )
