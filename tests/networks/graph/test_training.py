"""A graph with everything in it is trained, and the replay stays the rollout's."""

from operator import itemgetter

import jax.random as jr
import jax.tree_util as jtu
import numpy as np

from graphs import twelve_populations
from nnx_ppo_fn import (
    EvalConfig,
    Normalizer,
    NormalTanhSampler,
    partition_trainable,
    PPOAdapter,
    PPOConfig,
    Sequential,
    Stateless,
    train_ppo,
    TrainConfig,
)
from nnx_ppo_fn.algorithms.tolerance import replay_tolerance
from nnx_ppo_fn.envs import make
from nnx_ppo_fn.wrappers import EpisodeWrapper


ITERATIONS = 20
# Episodes end inside of rollouts. From PFC by way of BG to an output it takes 9 steps,
# 6 of them from where the weights stand, and all weights are to be trained.
ROLLOUT, EPISODE = 8, 13


def by_name(x):
    """Two numbers for each sense."""
    return {"image": x[:, :2], "touch": x[:, 1:]}


def policy_on(graph):
    action = Sequential([Stateless(itemgetter("arm")), NormalTanhSampler(1e-2)])
    adapter = PPOAdapter(action=action, value=Stateless(itemgetter("value")))
    return Sequential([Normalizer(3), Stateless(by_name), graph, adapter])


def test_twelve_populations_train_under_the_watch():
    network = policy_on(twelve_populations(jr.key(0)))
    config = TrainConfig(
        ppo=PPOConfig(
            n_envs=4,
            rollout_length=ROLLOUT,
            total_steps=4 * ROLLOUT * ITERATIONS,
            n_minibatches=2,
            n_epochs=1,
            learning_rate=3e-3,
        ),
        eval=EvalConfig(enabled=False),
    )
    logged = []
    result = train_ppo(
        EpisodeWrapper(make("pendulum"), EPISODE),
        network,
        config,
        log_fn=lambda metrics, steps: logged.append(metrics),
    )
    ratios = np.array([metrics["replay/log_ratio_max"] for metrics in logged])
    last = np.array([metrics["replay/log_ratio_last"] for metrics in logged])
    tolerance = replay_tolerance(config.ppo, partition_trainable(network)[0])
    assert result.total_iterations == len(ratios) == ITERATIONS
    assert np.all(ratios <= 1e-5) and np.all(ratios <= tolerance)
    # The last minibatch is replayed with weights that have moved, and shows it.
    assert np.all(last > 1e-4)
    assert sum(metrics["episode/count"] for metrics in logged) > ITERATIONS
    before, after = (
        jtu.tree_leaves_with_path(partition_trainable(one)[0])
        for one in (network, result.network)
    )
    for (path, old), (_, new) in zip(before, after, strict=True):
        assert np.all(np.isfinite(new)), jtu.keystr(path)
        assert np.any(new != old), jtu.keystr(path)
