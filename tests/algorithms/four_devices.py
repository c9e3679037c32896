"""A few steps of PPO on one device and on four, in a process that has four."""

import json
import os
import re


os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=4"

import jax
import jax.random as jr
import jax.tree_util as jtu
import numpy as np

from nnx_ppo_fn import (
    make_recurrent_actor_critic,
    new_training_state,
    on_mesh,
    ppo_step,
    PPOConfig,
    TrainConfig,
)
from nnx_ppo_fn.envs import make
from nnx_ppo_fn.wrappers import EpisodeWrapper


jax.config.update("jax_disable_most_optimizations", True)

ITERATIONS = 3
HIDDEN = 8


def numbers(leaf):
    return np.asarray(
        jr.key_data(leaf)
        if jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key)
        else leaf
    )


def differences(one, other):
    """The largest difference, relative where numbers are above 1, by dtype."""
    found = {}
    for a, b in zip(jtu.tree_leaves(one), jtu.tree_leaves(other), strict=True):
        kind = "key" if jax.dtypes.issubdtype(a.dtype, jax.dtypes.prng_key) else a.dtype
        a, b = (numbers(leaf).astype(np.float64) for leaf in (a, b))
        error = np.max(np.abs(a - b) / np.maximum(1, np.abs(a)), initial=0.0)
        found[str(kind)] = max(found.get(str(kind), 0.0), float(error))
    return found


def moved_between_devices(program):
    """The operation and the number of values of everything that devices exchange."""
    pattern = (
        r"= (.*?) (all-gather|all-to-all|all-reduce|reduce-scatter|"
        r"collective-permute)\("
    )
    return [
        (
            operation,
            [
                int(np.prod([int(n) for n in dims.split(",") if n]))
                for dims in re.findall(r"\w+\[([\d,]*)\]", shape)
            ],
        )
        for shape, operation in re.findall(pattern, program.as_text())
    ]


def where_gradients_are_summed(program):
    """The parts of a program, such as the body of a loop, that sum over devices.

    Only sums of as many values as a weight matrix has.
    """
    found, part = set(), None
    for line in program.as_text().splitlines():
        if line.endswith("{") and not line.startswith(" "):
            part = line
        summed = re.search(r"= (.*?) all-reduce\(", line)
        if summed and any(
            int(columns) * int(rows) >= HIDDEN**2
            for columns, rows in re.findall(r"f32\[(\d+),(\d+)\]", summed[1])
        ):
            found.add(part)
    return len(found)


def main():
    env = EpisodeWrapper(make("pendulum"), 5)
    network = make_recurrent_actor_critic(3, 1, key=jr.key(0), hidden_features=HIDDEN)
    config = TrainConfig(
        ppo=PPOConfig(
            n_envs=128, rollout_length=8, n_minibatches=4, n_epochs=2, n_shards=4
        )
    )
    start = new_training_state(env, network, config, key=jr.key(1))
    step = jax.jit(ppo_step, static_argnums=0)
    program = step.lower(env, start, config).compile()
    one, metrics = start, None
    for _ in range(ITERATIONS):
        one, metrics = program(one, config)
    found = {}
    for axes in ("Auto", "Explicit"):
        kind = (getattr(jax.sharding.AxisType, axes),)
        mesh = jax.make_mesh((4,), ("environments",), axis_types=kind)
        several, its_metrics = on_mesh(start, mesh), None
        its_program = step.lower(env, several, config).compile()
        for _ in range(ITERATIONS):
            several, its_metrics = its_program(several, config)
        found[axes] = {
            "devices": len(several.rollout_state.is_first.sharding.device_set),
            "differences": differences((one, metrics), (several, its_metrics)),
            "moved": moved_between_devices(its_program),
            "summing": where_gradients_are_summed(its_program),
            "flops": [p.cost_analysis()["flops"] for p in (program, its_program)],
            "parameters": sum(leaf.size for leaf in jtu.tree_leaves(one.parameters)),
        }
    print(json.dumps(found))


if __name__ == "__main__":
    main()
