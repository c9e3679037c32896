"""Small runs for the tests of the command line, and stand-ins for `train_ppo`."""

import math
import time

import equinox as eqx
import jax.random as jr
import jax.tree_util as jtu

from nnx_ppo_fn import train_ppo
from nnx_ppo_fn.algorithms import loop
from nnx_ppo_fn.algorithms.step import new_training_state
from nnx_ppo_fn.algorithms.types import TrainResult


FILES = ["config.json", "learning_curve.png", "metrics.jsonl", "network.eqx"]
SMALL = ["train", "probe:memory", "--n-envs", "8", "--total-steps", "1000"]


def files_in(folder):
    return sorted(path.name for path in folder.iterdir())


def first_decision(network, observation):
    """What a fresh network decides, sampling included."""
    keys = jr.split(jr.key(4), len(observation))
    return network(network.initialize_state(keys), observation).output


def result_of(env, network, config):
    """What `train_ppo` would return, without its compilation."""
    state = new_training_state(env, network, config, key=jr.key(0))
    return TrainResult(state, network, {}, [], 512, 1, 2.0, 1.0)


def moved(network):
    return jtu.tree_map(
        lambda leaf: leaf + 1 if eqx.is_inexact_array(leaf) else leaf, network
    )


def cut_short(how):
    """A `train_ppo` that stops after one iteration of a network that it moved."""

    def train(env, network, config, *, log_fn, **_):
        log_fn({"eval/episode_reward/mean": 0.5, "eval/episode_reward/std": 1.0}, 0)
        log_fn({"episode/return/mean": math.nan, "losses/critic/mean": math.inf}, 512)
        raise how(result_of(env, moved(network), config))

    return train


def trained_at_once(env, network, config, *, log_fn, **_):
    """A `train_ppo` that has nothing to do."""
    log_fn({"losses/critic/mean": 1.0}, 1024)
    return result_of(env, network, config)


def compiled_aloud(*arguments, **options):
    """`train_ppo`, which says when its steps are about to go to the compiler."""
    traced = loop.run_iterations

    def run_iterations(*given):
        results = traced(*given)
        print("traced", flush=True)
        return results

    loop.run_iterations = run_iterations
    return train_ppo(*arguments, **options)


def trained_and_slow(env, network, config, *, log_fn, **_):
    """A `train_ppo` that leaves time to interrupt what comes after it."""
    log_fn({"losses/critic/mean": 1.0}, 1024)
    print("over", flush=True)
    time.sleep(1)
    return result_of(env, network, config)


def endless(env, network, config, *, log_fn, **_):
    """A `train_ppo` whose second chunk takes for ever."""
    log_fn({"losses/critic/mean": 1.0}, 512)
    print("busy", flush=True)
    while True:
        time.sleep(0.1)
