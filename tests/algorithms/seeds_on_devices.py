"""Three seeds on two devices, and each by itself, in a process that has two."""

import dataclasses
import json

import jax
import jax.numpy as jnp
import jax.random as jr
import jax.tree_util as jtu

from nnx_ppo_fn import make_mlp_actor_critic, train_ppo, train_seeds
from nnx_ppo_fn._keys import derive
from nnx_ppo_fn.algorithms.config import EvalConfig, PPOConfig, TrainConfig
from nnx_ppo_fn.algorithms.spreading import devices_for, for_each_row, spread
from nnx_ppo_fn.envs import CartPole


jax.config.update("jax_num_cpu_devices", 2)
jax.config.update("jax_disable_most_optimizations", True)

ENV = CartPole(max_episode_length=5)
CONFIG = TrainConfig(
    PPOConfig(n_envs=4, rollout_length=8, total_steps=64, n_epochs=2, n_minibatches=2),
    EvalConfig(enabled=False),
)
SEEDS = [3, 8, 5]


def make_network(key):
    return make_mlp_actor_critic(None, None, (8,), (8,), key=key, env=ENV)


def largest_difference(one, other):
    pairs = zip(jtu.tree_leaves(one), jtu.tree_leaves(other), strict=True)
    return max(float(jnp.max(jnp.abs(a - b))) for a, b in pairs)


def main():
    found = []
    # A coefficient may be on one of the devices.
    rate = jax.device_put(jnp.float32(CONFIG.ppo.learning_rate), jax.devices()[0])
    placed = dataclasses.replace(
        CONFIG, ppo=dataclasses.replace(CONFIG.ppo, learning_rate=rate)
    )
    results = train_seeds(ENV, make_network, placed, seeds=SEEDS)
    with jax.set_mesh(jax.make_mesh((2,), ("others",))):
        within = train_seeds(ENV, make_network, CONFIG, seeds=SEEDS)
    for seed, result in zip(SEEDS, results, strict=True):
        network = make_network(derive(jr.key(seed), "initial weights"))
        alone = train_ppo(ENV, network, CONFIG, seed=seed)
        parameters = result.training_state.parameters
        found.append(
            {
                "difference": largest_difference(
                    parameters, alone.training_state.parameters
                ),
                "moved": largest_difference(
                    alone.training_state.parameters,
                    jtu.tree_map(jnp.zeros_like, parameters),
                ),
                "committed": any(
                    leaf.committed for leaf in jtu.tree_leaves(result.training_state)
                ),
                "devices": sorted(
                    {
                        device.id
                        for leaf in jtu.tree_leaves(result.training_state)
                        for device in leaf.devices()
                    }
                ),
            }
        )
    mesh = devices_for(4)
    rows = spread(jnp.arange(4.0), mesh)
    doubled = jax.jit(
        lambda rows, by: for_each_row(lambda row, by: row * by, rows, by, mesh=mesh)
    )(rows, jnp.float32(2))
    print(
        json.dumps(
            {
                "seeds": found,
                "within": max(
                    largest_difference(
                        one.training_state.parameters,
                        jax.device_get(other.training_state.parameters),
                    )
                    for one, other in zip(results, within, strict=True)
                ),
                "doubled": doubled.tolist(),
                "devices": len(doubled.devices()),
                "few": devices_for(1).size,
            }
        )
    )


if __name__ == "__main__":
    main()
