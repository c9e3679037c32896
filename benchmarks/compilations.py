"""Counts how often a training compiles."""

import contextlib
import dataclasses
import tempfile
from collections.abc import Generator
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import jax.tree_util as jtu

from nnx_ppo_fn import (
    new_training_state,
    ppo_step,
    PPOConfig,
    step_compiler_options,
    TrainConfig,
    TrainingState,
)

from .networks import NETWORKS
from .ring import Ring


class Compilations(NamedTuple):
    """How often a step was compiled.

    - `iterations`: in a row, with other coefficients from the middle on and a state
      that came back from disk.
    - `compilations`: one is best.
    """

    iterations: int
    compilations: int


def count_compilations(iterations: int, *, environments: int = 8) -> Compilations:
    """Trains for a while, changing what must not compile anew.

    **Arguments:**

    - `iterations`: how many.
    - `environments`: side by side.
    """
    env = Ring()
    config = TrainConfig(ppo=PPOConfig(n_envs=environments, rollout_length=4))
    network = NETWORKS["mlp"](jr.key(0))
    step = jax.jit(
        ppo_step,
        static_argnums=0,
        donate_argnums=1,
        compiler_options=step_compiler_options(),
    )
    compilations = 0
    state = new_training_state(env, network, config, key=jr.key(1))
    for index in range(iterations):
        if index == iterations // 2:
            state = _through_file(state)
            config = dataclasses.replace(
                config,
                ppo=dataclasses.replace(
                    config.ppo,
                    learning_rate=3e-4,
                    clip_range=0.1,
                    discounting_factor=0.9,
                ),
            )
        with _compilations() as seen:
            state, _ = step(env, state, config)
        compilations += len(seen)
    return Compilations(iterations, compilations)


@contextlib.contextmanager
def _compilations() -> Generator[list[str]]:
    """Collects what JAX tells of programs that it compiles meanwhile."""
    seen: list[str] = []

    def listen(event: str, duration_secs: float, **kwargs: str | int) -> None:
        del duration_secs, kwargs
        if event == "/jax/core/compile/backend_compile_duration":
            seen.append(event)

    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        yield seen
    finally:
        jax.monitoring.unregister_event_duration_listener(listen)


def _through_file(state: TrainingState) -> TrainingState:
    """The state as it comes back from disk."""

    def is_key(leaf: Any) -> bool:
        return jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)

    plain = jtu.tree_map(
        lambda leaf: jr.key_data(leaf) if is_key(leaf) else leaf, state
    )
    with tempfile.TemporaryFile() as file:
        eqx.tree_serialise_leaves(file, plain)
        file.seek(0)
        plain = eqx.tree_deserialise_leaves(file, plain)
    return jtu.tree_map(
        lambda leaf, before: jr.wrap_key_data(leaf) if is_key(before) else leaf,
        plain,
        state,
    )
