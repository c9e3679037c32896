"""Under `jax_enable_x64`: carries keep their dtypes, and losses stay `float32`."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import jax.tree_util as jtu
import numpy as np
import pytest

from nnx_ppo_fn import (
    AR1VariationalBottleneck,
    BernoulliGate,
    check_module,
    Delay,
    Dropout,
    GaussianNoise,
    LRU,
    make_conv_encoder,
    MinGRU,
    Normalizer,
    Scale,
    unroll,
    VariationalBottleneck,
    WindowedAttention,
)


def one(value):
    return jnp.array(value, jnp.float64)


@pytest.fixture(autouse=True)
def wide():
    with jax.enable_x64(True):
        yield


@pytest.mark.parametrize(
    "make",
    [
        lambda: AR1VariationalBottleneck(2, one(0.1), one(1e-6), one(0.1)),
        lambda: VariationalBottleneck(2, one(0.1), one(1e-6)),
        lambda: BernoulliGate(4, gradient="relaxed", temperature=one(0.5)),
        lambda: GaussianNoise(one(0.1)),
        lambda: Dropout(one(0.1)),
        lambda: Scale(one(2.0)),
        lambda: Normalizer(4, clip=one(2.0)),
        lambda: Delay(jnp.zeros(4, jnp.float32), 2, one(0.1)),
        lambda: LRU(4, 2, key=jr.key(0), trainable_initial_state=True),
        lambda: MinGRU(4, 2, key=jr.key(0)),
        lambda: WindowedAttention(4, 2, key=jr.key(0), window=3),
    ],
)
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
def test_an_array_of_float64_widens_nothing(make, dtype):
    module, x = make(), jnp.ones((2, 3, 4), dtype)
    if isinstance(module, Delay):
        x = x.astype(jnp.float32)
    state = module.initialize_state(jr.split(jr.key(0), 3))
    rollout = eqx.filter_eval_shape(unroll, module, state, x, jnp.zeros((2, 3), bool))
    step = eqx.filter_eval_shape(module, state, x[0])
    for result in (rollout, step):
        assert result.output.dtype == x.dtype
        rest = (result.regularization_loss, result.metrics)
        assert {leaf.dtype for leaf in jtu.tree_leaves(rest)} == {jnp.dtype("float32")}
        kept = [leaf.dtype for leaf in jtu.tree_leaves(result.next_state)]
        assert kept == [leaf.dtype for leaf in jtu.tree_leaves(state)]


def test_a_factor_keeps_the_precision_of_what_it_scales():
    for factor in (0.1, one(0.1)):
        out = Scale(factor)((), jnp.ones((2, 1), jnp.float64)).output
        np.testing.assert_array_equal(out, np.full((2, 1), 0.1))


def test_the_weights_of_an_encoder_are_float32():
    encoder = make_conv_encoder((3, 3, 1), 2, key=jr.key(0), channels=(1,))
    dtypes = {leaf.dtype for leaf in jtu.tree_leaves(eqx.filter(encoder, eqx.is_array))}
    assert dtypes == {jnp.dtype("float32")}


@pytest.mark.parametrize(
    "make",
    [
        lambda: Delay(jnp.zeros(3), 2),
        lambda: Normalizer(3),
        lambda: GaussianNoise([0.1, 0.2, 0.3], learned=True, multiplicative=True),
        lambda: BernoulliGate(3),
    ],
)
def test_inputs_of_float64_obey_the_laws(make):
    check_module(make(), jr.normal(jr.key(0), (4, 3)), key=jr.key(1), length=3)
