"""The optimiser of vectors, against optax on the separate arrays."""

import jax
import jax.numpy as jnp
import jax.random as jr
import jax.tree_util as jtu
import numpy as np
import optax
import pytest

from nnx_ppo_fn import PPOConfig
from nnx_ppo_fn.algorithms.optimizer import make_optimizer


def of_several_types(key):
    keys = jr.split(key, 4)
    return {
        "layers": [
            {"kernel": jr.normal(keys[0], (3, 4)), "bias": jr.normal(keys[1], (4,))},
            {"kernel": jr.normal(keys[2], (4, 2), jnp.bfloat16), "bias": None},
        ],
        "scale": jr.normal(keys[3], ()),
        "nothing": jnp.zeros((0, 3)),
    }


@pytest.mark.parametrize("clipping", [None, 0.5])
@pytest.mark.parametrize("decay", [None, 0.1])
def test_numbers_are_those_of_separate_arrays(clipping, decay):
    config = PPOConfig(gradient_clipping=clipping, weight_decay=decay)
    separate = optax.chain(
        *([] if clipping is None else [optax.clip_by_global_norm(clipping)]),
        optax.scale_by_adam(eps=config.adam_epsilon),
        *([] if decay is None else [optax.add_decayed_weights(decay)]),
        optax.scale(-0.1),
    )
    ends = []
    for optimizer in (make_optimizer(config, 0.1), separate):
        parameters = of_several_types(jr.key(0))
        state, update = optimizer.init(parameters), jax.jit(optimizer.update)
        with jax.numpy_dtype_promotion("standard"):
            for step in range(3):
                gradient = of_several_types(jr.key(1 + step))
                updates, state = update(gradient, state, parameters)
                parameters = optax.apply_updates(parameters, updates)
        ends.append(parameters)
    assert jtu.tree_structure(ends[0]) == jtu.tree_structure(ends[1])
    for one, other in zip(*map(jtu.tree_leaves, ends), strict=True):
        assert (one.shape, one.dtype) == (other.shape, other.dtype)
        tolerance = 1e-5 if one.dtype == jnp.float32 else 1e-2
        one, other = (np.asarray(leaf, np.float32) for leaf in (one, other))
        np.testing.assert_allclose(one, other, rtol=tolerance, atol=tolerance)


def test_its_state_is_a_vector_of_each_type():
    optimizer = make_optimizer(PPOConfig(), 0.1)
    state = optimizer.init(of_several_types(jr.key(0)))
    shapes = {leaf.shape for leaf in jtu.tree_leaves(state)}
    # Of float32 12 + 4 + 1 numbers, of bfloat16 8, and a count.
    assert shapes == {(17,), (8,), ()}
    assert jtu.tree_leaves(optimizer.init({})) == [0]
