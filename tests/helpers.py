"""What several tests share: small networks, and exact comparisons of trees."""

import jax
import jax.numpy as jnp
import jax.random as jr
import jax.tree_util as jtu
import numpy as np

from nnx_ppo_fn import (
    CategoricalSampler,
    Dense,
    EvalConfig,
    LSTM,
    make_mlp_layers,
    Normalizer,
    PPOAdapter,
    PPOConfig,
    Sequential,
    TrainConfig,
    VariationalBottleneck,
)


def bits(leaf):
    """The numbers of an array; of typed keys, their raw data."""
    if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        leaf = jr.key_data(leaf)
    return np.asarray(leaf)


def tree_equal(left, right):
    """Whether two trees are the same bit for bit (NaN equals NaN)."""
    if jtu.tree_structure(left) != jtu.tree_structure(right):
        return False
    return all(
        np.array_equal(bits(a), bits(b), equal_nan=bits(a).dtype.kind == "f")
        for a, b in zip(jtu.tree_leaves(left), jtu.tree_leaves(right), strict=True)
    )


def assert_close(left, right, tolerance=1e-5):
    """Floats within a tolerance, everything else bit for bit."""
    assert jtu.tree_structure(left) == jtu.tree_structure(right)
    for a, b in zip(jtu.tree_leaves(left), jtu.tree_leaves(right), strict=True):
        a, b = bits(a), bits(b)
        if a.dtype.kind == "f":
            np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)
        else:
            np.testing.assert_array_equal(a, b)


def small_network(key, observation_size, n_actions=2, *, hidden=8):
    """Normaliser, LSTM with a trained initial state, bottleneck, discrete policy."""
    keys = jr.split(key, 5)
    return Sequential(
        [
            Normalizer(observation_size),
            LSTM(observation_size, hidden, key=keys[0], trainable_initial_state=True),
            Dense(hidden, 2 * hidden, key=keys[1]),
            VariationalBottleneck(hidden, kl_weight=1e-3),
            PPOAdapter(
                Sequential(
                    [Dense(hidden, n_actions, key=keys[2]), CategoricalSampler(0.01)]
                ),
                Dense(hidden, 1, key=keys[3]),
            ),
        ]
    )


def mlp_network(key, observation_size, n_actions=2, *, hidden=16, entropy_weight=0.01):
    """A memoryless policy and a critic, without a normaliser."""
    actor, critic = jr.split(key)
    sizes = [observation_size, hidden]
    return PPOAdapter(
        Sequential(
            [
                *make_mlp_layers(
                    [*sizes, n_actions],
                    key=actor,
                    activation=jnp.tanh,
                    activation_last_layer=False,
                ),
                CategoricalSampler(entropy_weight),
            ]
        ),
        Sequential(
            make_mlp_layers(
                [*sizes, 1],
                key=critic,
                activation=jnp.tanh,
                activation_last_layer=False,
            )
        ),
    )


def small_config(*, seed=0, eval_enabled=False, **settings):
    """A training configuration of a few small iterations."""
    defaults = {
        "n_envs": 8,
        "rollout_length": 5,
        "total_steps": 200,
        "n_epochs": 2,
        "n_minibatches": 2,
        "learning_rate": 1e-3,
    }
    return TrainConfig(
        ppo=PPOConfig(**(defaults | settings)),
        eval=EvalConfig(
            enabled=eval_enabled, every_steps=80, n_envs=4, max_episode_length=20
        ),
        seed=seed,
    )
