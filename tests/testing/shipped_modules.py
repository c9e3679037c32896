"""Every module that the library ships, with an input that it may meet.

Tests of laws run through all of them; a new module adds an entry here.
"""

import functools as ft
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr

from nnx_ppo_fn import (
    AR1VariationalBottleneck,
    BernoulliGate,
    BernoulliSampler,
    BetaSampler,
    CategoricalSampler,
    Concat,
    ConstrainedDense,
    Delay,
    Dense,
    Dropout,
    Filter,
    Flattener,
    GaussianNoise,
    GRU,
    Lift,
    LRU,
    LSTM,
    make_conv_encoder,
    Map,
    Merge,
    MinGRU,
    MultiCategoricalSampler,
    Normalizer,
    NormalSampler,
    NormalTanhSampler,
    Override,
    Parallel,
    PopulationGraphBuilder,
    PPOAdapter,
    Recorder,
    Scale,
    Sequential,
    Splitter,
    Stateless,
    VariationalBottleneck,
    WindowedAttention,
)


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


MODULES: dict[str, Callable[[Any], tuple[Any, Any]]] = {
    "Dense": lambda key: (Dense(3, 4, key=key, activation=jnp.tanh), features(3)),
    "ConstrainedDense": lambda key: (
        ConstrainedDense(3, 2, key=key, sign=[1, -1, 1], mask=[[1, 0], [1, 1], [0, 1]]),
        features(3),
    ),
    "PopulationGraph": lambda key: (
        PopulationGraphBuilder(key=key)
        .add_input("a", 3, input_from="x", activation=[jnp.tanh, GaussianNoise(0.1)])
        .add_output("b", 2)
        .connect("a", "b", delay=2, reciprocal=True)
        .finalize(),
        {"x": features(3)},
    ),
    "Stateless": lambda key: (Stateless(jax.nn.relu), features(3)),
    "Lift": lambda key: (Lift(eqx.nn.MLP(3, 2, 4, 1, key=key)), features(3)),
    "Lift of a layer that draws": lambda key: (
        Lift(eqx.nn.Sequential([eqx.nn.Dropout(0.5), eqx.nn.Linear(3, 2, key=key)])),
        features(3),
    ),
    "Lift of a layer that draws, with fresh keys": lambda key: (
        Lift(eqx.nn.Dropout(0.5), fresh_keys=True),
        features(3),
    ),
    "Lift of an embedding": lambda key: (
        Lift(eqx.nn.Embedding(6, 2, key=key)),
        jnp.arange(5),
    ),
    "make_conv_encoder": lambda key: (
        make_conv_encoder((4, 3, 2), 2, key=key, channels=(3,), kernel_sizes=2),
        jr.randint(jr.key(7), (5, 4, 3, 2), 0, 256).astype(jnp.uint8),
    ),
    "VariationalBottleneck": lambda key: (VariationalBottleneck(2), features(4)),
    "VariationalBottleneck with fresh keys": lambda key: (
        VariationalBottleneck(2, fresh_keys=True),
        features(4),
    ),
    "AR1VariationalBottleneck": lambda key: (AR1VariationalBottleneck(2), features(4)),
    "AR1VariationalBottleneck without backprop": lambda key: (
        AR1VariationalBottleneck(2, backprop_through_time=False, fresh_keys=True),
        features(4),
    ),
    "GaussianNoise": lambda key: (GaussianNoise(0.3), features(3)),
    "GaussianNoise of a learned scale": lambda key: (
        GaussianNoise([0.1, 0.2, 0.3], multiplicative=True, learned=True),
        features(3),
    ),
    "GaussianNoise with fresh keys": lambda key: (
        GaussianNoise(0.3, fresh_keys=True),
        features(3).astype(jnp.bfloat16),
    ),
    "Dropout": lambda key: (Dropout(0.4), features(3)),
    "Dropout for an episode": lambda key: (Dropout(0.4, "episode"), features(3)),
    "BernoulliGate": lambda key: (BernoulliGate(3), features(3)),
    "BernoulliGate of relaxed gradient": lambda key: (
        BernoulliGate(3, gradient="relaxed", fresh_keys=True),
        features(3),
    ),
    "Delay": lambda key: (Delay(jnp.zeros(3), 2), features(3)),
    "Delay of a tree": lambda key: (
        Delay({"image": jnp.zeros((2, 2)), "speed": jnp.zeros(1)}, 1, -1.5),
        observations(),
    ),
    "Delay longer than the rollout": lambda key: (
        Delay({"count": 0, "seen": jnp.zeros(2)}, 6),
        {"count": jnp.arange(5), "seen": features(2)},
    ),
    "NormalTanhSampler": lambda key: (NormalTanhSampler(0.1), features(4)),
    "NormalTanhSampler with log_std": lambda key: (
        NormalTanhSampler(0.1, log_std=jnp.zeros(2)),
        features(2).astype(jnp.bfloat16),
    ),
    "NormalSampler": lambda key: (NormalSampler(0.1), features(4)),
    "NormalSampler with bounds and log_std": lambda key: (
        NormalSampler(0.1, bounds=(-0.5, [0.3, 0.4]), log_std=jnp.zeros(2)),
        features(2),
    ),
    "BetaSampler": lambda key: (BetaSampler(0.1), features(4)),
    "CategoricalSampler": lambda key: (CategoricalSampler(0.1), features(4)),
    "CategoricalSampler with mask": lambda key: (
        CategoricalSampler(0.1),
        masked_logits(),
    ),
    "MultiCategoricalSampler with mask": lambda key: (
        MultiCategoricalSampler(0.1, (3, 1), fresh_keys=True),
        masked_logits(),
    ),
    "BernoulliSampler with mask": lambda key: (
        BernoulliSampler(0.1),
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
    "LRU": lambda key: (LRU(3, 2, key=key, out_features=4), features(3)),
    "LRU with trainable initial state": lambda key: (
        LRU(3, 2, key=key, trainable_initial_state=True),
        features(3).astype(jnp.bfloat16),
    ),
    "MinGRU": lambda key: (MinGRU(3, 2, key=key), features(3)),
    "MinGRU with trainable initial state": lambda key: (
        MinGRU(3, 2, key=key, trainable_initial_state=True),
        features(3),
    ),
    "WindowedAttention": lambda key: (
        WindowedAttention(3, 2, key=key, window=3, heads=2),
        features(3),
    ),
    "WindowedAttention longer than the rollout": lambda key: (
        WindowedAttention(3, 3, key=key, window=7, heads=1, head_features=2),
        features(3).astype(jnp.bfloat16),
    ),
    "GRU": lambda key: (GRU(3, 2, key=key), features(3, batch=4)),
    "Parallel": lambda key: (
        Parallel(a=VariationalBottleneck(1), b=Stateless(jnp.tanh)),
        features(2),
    ),
    "Map": lambda key: (
        Map(image=Flattener(), speed=GaussianNoise(0.3)),
        observations(),
    ),
    "Concat": lambda key: (
        Concat(image=Flattener(), speed=GRU(1, 2, key=key)),
        observations(),
    ),
    "Merge": lambda key: (
        Merge(a=Parallel(x=GaussianNoise(0.3)), b=Parallel(y=Dense(2, 3, key=key))),
        features(2),
    ),
    "Splitter": lambda key: (Splitter(b=2, a=1), features(4)),
    "Scale": lambda key: (Scale(0.5), observations()),
    "Recorder": lambda key: (Recorder(LSTM(3, 2, key=key)), features(3)),
    "Recorder of a Normalizer": lambda key: (Recorder(Normalizer(3)), features(3)),
    "Override": lambda key: (Override(LSTM(3, 2, key=key), jnp.sin), features(3)),
    "Override of noise": lambda key: (
        Override(GaussianNoise(0.3), jnp.sin),
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
"""By name: a function that takes a key and gives `(module, example_input)`."""


def row_means(tree):
    """One number for each row of a tree, such as a value."""
    leaf = jax.tree.leaves(tree)[0].astype(jnp.float32)
    return jnp.mean(leaf.reshape(len(leaf), -1), axis=-1)


@ft.cache
def outlines():
    """Every module with shapes in the place of its arrays: nothing is compiled."""
    return {
        name: eqx.filter_eval_shape(build, jr.key(0))[0]
        for name, build in MODULES.items()
    }


def one_of_each_class():
    """The names of the first module of every class."""
    first = {}
    for name, module in outlines().items():
        first.setdefault(type(module), name)
    return list(first.values())


def bank(names, wrap=lambda module, x: (module, x), *, key):
    """Several modules side by side in one `Map`, and an input for it.

    - `names`: of the modules.
    - `wrap`: takes a module and its example input, and gives both as they are used.
    """
    modules, xs = {}, {}
    for index, name in enumerate(names):
        module, x = MODULES[name](jr.fold_in(key, index))
        x = jax.tree.map(lambda leaf: leaf[:4], x)
        modules[name], xs[name] = wrap(module, x)
    return Map(modules), xs
