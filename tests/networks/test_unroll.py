from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from helpers import assert_close
from nnx_ppo_fn._keys import EpisodeKeys, normals
from nnx_ppo_fn.networks.adapter import PPOAdapter
from nnx_ppo_fn.networks.containers import Parallel, Sequential
from nnx_ppo_fn.networks.feedforward import Dense, Stateless
from nnx_ppo_fn.networks.normalizer import Normalizer
from nnx_ppo_fn.networks.recurrent import GRU, LSTM
from nnx_ppo_fn.networks.sampling_layers import CategoricalSampler, NormalTanhSampler
from nnx_ppo_fn.networks.types import ChainedModule, output, StatefulModule
from nnx_ppo_fn.networks.unroll import reset_where, unroll, unroll_by_step
from nnx_ppo_fn.networks.variational import VariationalBottleneck


LENGTH, BATCH, SIZE = 7, 4, 6


class Leak(StatefulModule[Any, Any, Any]):
    """`s' = decay * s + x`: no special way through time."""

    decay: jax.Array

    def initialize_state(self, keys):
        return jnp.zeros((len(keys), SIZE))

    def reset_state(self, state):
        return jnp.zeros_like(state)

    def __call__(self, state, x, rollout_extras=None):
        state = self.decay * state + x
        return output(state, batch=len(x), next_state=state)


class Clock(ChainedModule[Any, Any, Any, Any]):
    """Adds the number of the step in the episode, and noise held for the episode."""

    scale: jax.Array

    def initialize_state(self, keys):
        return jnp.zeros(len(keys), jnp.int32), EpisodeKeys.of(keys)

    def reset_state(self, state):
        return jnp.zeros_like(state[0]), EpisodeKeys.of(state[1].chain)

    def advance(self, state):
        step, keys = state
        return (step + 1, keys), (step, keys.held.key)

    def apply(self, draw, x, rollout_extras=None):
        step, key = draw
        clock = step[:, None].astype(jnp.float32) + normals(key, SIZE)
        return output(x + self.scale * clock, batch=len(x), metrics={"step": step})


def modules():
    keys = iter(jr.split(jr.key(5), 20))

    def dense(out):
        return Dense(SIZE, out, key=next(keys))

    return {
        "stateless": Stateless(jnp.tanh),
        "dense": dense(3),
        "normalizer": Normalizer(SIZE),
        "bottleneck": VariationalBottleneck(SIZE // 2),
        "continuous": NormalTanhSampler(0.1),
        "discrete": CategoricalSampler(0.1),
        "lstm": LSTM(SIZE, 5, key=next(keys), trainable_initial_state=True),
        "gru": GRU(SIZE, 5, key=next(keys), trainable_initial_state=True),
        "step by step": Leak(jnp.array(0.9)),
        "chained": Clock(jnp.array(0.5)),
        "network": Sequential(
            [
                Normalizer(SIZE),
                Leak(jnp.array(0.5)),
                Parallel(memory=GRU(SIZE, 4, key=next(keys)), linear=dense(4)),
                Stateless(lambda x: jnp.concatenate([x["memory"], x["linear"]], -1)),
                PPOAdapter(
                    action=CategoricalSampler(0.1), value=Dense(8, 1, key=next(keys))
                ),
            ]
        ),
    }


MODULES = modules()


@pytest.fixture(params=MODULES)
def module(request):
    return MODULES[request.param]


@pytest.fixture
def xs(getkey):
    return jr.normal(getkey(), (LENGTH, BATCH, SIZE))


@pytest.fixture
def is_first(getkey):
    return jr.bernoulli(getkey(), 0.3, (LENGTH, BATCH))


@pytest.fixture
def state(module, getkey):
    return module.initialize_state(jr.split(getkey(), BATCH))


def total(result):
    """One number that every float of an output has a part in."""
    parts = (result.output, result.regularization_loss, result.next_state)
    return sum(
        jnp.sum(jnp.sin(leaf))
        for leaf in jax.tree.leaves(parts)
        if jnp.issubdtype(leaf.dtype, jnp.floating)
    )


@eqx.filter_jit
def run(through_time, module, state, xs, is_first, extras):
    """An unroll, and the gradient of all it says."""

    def loss(inputs):
        module, xs = inputs
        result = through_time(module, state, xs, is_first, extras)
        return total(result), result

    (_, result), gradient = eqx.filter_value_and_grad(loss, has_aux=True)((module, xs))
    return result, gradient


jitted_unroll = eqx.filter_jit(unroll)


def test_a_rollout_and_its_replay_equal_the_loop_over_steps(
    module, state, xs, is_first
):
    result, gradient = run(unroll, module, state, xs, is_first, None)
    expected, expected_gradient = run(unroll_by_step, module, state, xs, is_first, None)
    assert_close(result, expected, 1e-6)
    assert_close(gradient, expected_gradient, 1e-5)
    assert all(np.all(np.isfinite(leaf)) for leaf in jax.tree.leaves(gradient))

    replayed, _ = run(unroll, module, state, xs, is_first, result.rollout_extras)
    assert_close(replayed, result, 1e-6)


def test_a_poisoned_carry_is_reset_on_entry(module, state, xs, is_first):
    floats, rest = eqx.partition(state, eqx.is_inexact_array)
    poisoned = eqx.combine(
        jax.tree.map(lambda x: jnp.full_like(x, jnp.nan), floats), rest
    )
    is_first = is_first.at[0].set(True)
    result, gradient = run(unroll, module, poisoned, xs, is_first, None)
    expected, expected_gradient = run(unroll, module, state, xs, is_first, None)
    assert_close(result, expected, 0)
    assert_close(gradient, expected_gradient, 0)


@pytest.mark.parametrize("kind", ["chained", "lstm"])
def test_cutting_time_changes_nothing(kind, xs, is_first, getkey):
    module = MODULES[kind]
    state = module.initialize_state(jr.split(getkey(), BATCH))
    whole, _ = run(unroll, module, state, xs, is_first, None)
    start = jitted_unroll(module, state, xs[:3], is_first[:3])
    end = jitted_unroll(module, start.next_state, xs[3:], is_first[3:])
    joined = jax.tree.map(
        lambda *parts: jnp.concatenate(parts),
        *((part.output, part.metrics) for part in (start, end)),
    )
    assert_close(joined, (whole.output, whole.metrics), 1e-6)
    assert_close(end.next_state, whole.next_state, 1e-6)


@pytest.mark.parametrize("kind", ["dense", "chained", "step by step", "gru"])
def test_no_time_at_all(kind, xs, is_first, getkey):
    module = MODULES[kind]
    state = module.initialize_state(jr.split(getkey(), BATCH))
    result = jitted_unroll(module, state, xs[:0], is_first[:0])
    assert_close(result.next_state, state, 0)
    assert result.output.shape[:2] == result.regularization_loss.shape == (0, BATCH)


def test_the_carry_after_an_episode_is_not_reset_yet(xs):
    module = MODULES["step by step"]
    is_first = jnp.zeros((LENGTH, BATCH), bool).at[2, 1].set(True)
    start = jnp.ones((BATCH, SIZE))
    result = unroll(module, start, xs[:2], is_first[:2])
    # 0.9 * (0.9 * 1 + x0) + x1, though a new episode begins at step 2.
    np.testing.assert_allclose(
        result.next_state, 0.81 + 0.9 * xs[0] + xs[1], rtol=1e-5, atol=1e-6
    )
    step = unroll(module, result.next_state, xs[2:3], is_first[2:3])
    np.testing.assert_array_equal(step.output[0, 1], xs[2, 1])


@pytest.mark.parametrize("kind", ["normalizer", "discrete", "network"])
def test_extras_go_back_as_they_were_received(kind, xs, is_first, getkey):
    module = MODULES[kind]
    state = module.initialize_state(jr.split(getkey(), BATCH))
    result = jax.eval_shape(lambda: unroll(module, state, xs, is_first))
    extras = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), result.rollout_extras)

    def replay(extras):
        again = unroll(module, state, xs, is_first, extras).rollout_extras
        for received, returned in zip(
            jax.tree.leaves(extras), jax.tree.leaves(again), strict=True
        ):
            assert received is returned
        return again

    jax.eval_shape(replay, extras)


def test_reset_where_resets_only_the_rows_it_is_told_to(getkey):
    module = MODULES["chained"]
    state = module.initialize_state(jr.split(getkey(), 3))
    state = module(state, jnp.ones((3, SIZE))).next_state
    step, keys = reset_where(module, jnp.array([False, True, False]), state)
    np.testing.assert_array_equal(step, [1, 0, 1])
    same = jr.key_data(keys.held.key) == jr.key_data(state[1].held.key)
    np.testing.assert_array_equal(jnp.all(same, axis=-1), [True, False, True])
