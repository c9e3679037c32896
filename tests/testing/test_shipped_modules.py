"""Every module that the library ships obeys every law."""

import jax
import jax.numpy as jnp
import jax.random as jr
import pytest

from nnx_ppo_fn import (
    CategoricalSampler,
    Dense,
    Filter,
    Flattener,
    GRU,
    LSTM,
    Normalizer,
    NormalTanhSampler,
    Parallel,
    PPOAdapter,
    Sequential,
    Stateless,
    VariationalBottleneck,
)
from nnx_ppo_fn.testing import check_module


def features(size, batch=5):
    return jr.normal(jr.key(3), (batch, size))


def masked_logits():
    logits = features(4)
    mask = jr.bernoulli(jr.key(4), 0.5, logits.shape)
    return {"logits": logits, "mask": mask.at[0].set(False).at[1].set(True)}


def trained_normalizer():
    normalizer = Normalizer(3)
    seen = 5.0 + 2.0 * jr.normal(jr.key(5), (7, 4, 3))
    return normalizer.update_statistics(seen)


def tree_normalizer():
    return Normalizer({"image": (2, 2), "speed": 1})


def observations():
    image = jr.normal(jr.key(6), (5, 2, 2))
    return {"image": image, "speed": features(1)}


MODULES = {
    "Dense": lambda key: (Dense(3, 4, key=key, activation=jnp.tanh), features(3)),
    "Stateless": lambda key: (Stateless(jax.nn.relu), features(3)),
    "VariationalBottleneck": lambda key: (VariationalBottleneck(2), features(4)),
    "NormalTanhSampler": lambda key: (NormalTanhSampler(0.1), features(4)),
    "CategoricalSampler": lambda key: (CategoricalSampler(0.1), features(4)),
    "CategoricalSampler with mask": lambda key: (
        CategoricalSampler(0.1),
        masked_logits(),
    ),
    "Normalizer": lambda key: (Normalizer(3), features(3)),
    "Normalizer with a past": lambda key: (trained_normalizer(), features(3)),
    "Normalizer of a tree": lambda key: (tree_normalizer(), observations()),
    "Flattener": lambda key: (Flattener(), observations()),
    "Flattener of two levels": lambda key: (
        Flattener(preserve_levels=1),
        {"seen": observations(), "goal": features(2)},
    ),
    "Filter": lambda key: (Filter({"now": ("speed",)}), observations()),
    "LSTM": lambda key: (LSTM(3, 2, key=key), features(3)),
    "LSTM with trainable initial state": lambda key: (
        LSTM(3, 2, key=key, trainable_initial_state=True),
        features(3),
    ),
    "GRU": lambda key: (GRU(3, 2, key=key), features(3, batch=4)),
    "Parallel": lambda key: (
        Parallel(a=VariationalBottleneck(1), b=Stateless(jnp.tanh)),
        features(2),
    ),
    "network": lambda key: (
        Sequential(
            [
                Normalizer(3),
                LSTM(3, 2, key=key),
                PPOAdapter(NormalTanhSampler(0.1), Dense(2, 1, key=key)),
            ]
        ),
        features(3),
    ),
}


@pytest.mark.parametrize("name", MODULES)
def test_obeys_the_laws(name, getkey):
    module, x = MODULES[name](getkey())
    check_module(module, x, key=getkey(), length=4)
