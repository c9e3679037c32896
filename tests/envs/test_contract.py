"""What holds for every environment that has a name."""

import itertools
import math

import jax
import jax.numpy as jnp
import jax.random as jr
import jax.tree_util as jtu
import numpy as np
import pytest

from nnx_ppo_fn import envs


GYMNAX = ("gymnax:CartPole-v1", "gymnax:Pendulum-v1", "gymnax:MemoryChain-bsuite")
NAMES = (*envs.available(), *GYMNAX)


@pytest.fixture(params=NAMES)
def env(request):
    if request.param in GYMNAX:
        pytest.importorskip("gymnax")
    return envs.make(request.param)


def neutral_actions(env, batch):
    shape = (batch,) if env.discrete else (batch, env.action_size)
    return jnp.zeros(shape, jnp.int32 if env.discrete else jnp.float32)


def signature(tree):
    return jtu.tree_map(
        lambda leaf: (leaf.shape, leaf.dtype, getattr(leaf, "weak_type", False)), tree
    )


def plain(leaf):
    is_key = jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
    return np.asarray(jr.key_data(leaf) if is_key else leaf)


def test_step_keeps_the_form_of_reset(env):
    keys = jr.split(jr.key(0), 3)
    first = jax.jit(jax.vmap(env.reset))(keys)
    second = jax.jit(jax.vmap(env.step))(first, neutral_actions(env, 3))

    assert signature(first) == signature(second)
    for state in (first, second):
        assert isinstance(state, envs.EnvState)
        for leaf in jtu.tree_leaves(state):
            assert not getattr(leaf, "weak_type", False)
        assert state.obs.dtype == jnp.float32
        assert state.reward.dtype == jnp.float32
        assert state.done.dtype == state.info["truncated"].dtype == bool
        assert state.info["terminated"].dtype == bool
    assert first.obs[0].size == env.observation_size
    assert not np.any(first.done) and not np.any(first.reward)


def test_starts_are_random_and_their_own(env):
    """Other keys give other starts, the same key the same one, and a start does not
    depend on the batch around it."""
    keys = jr.split(jr.key(1), 16)
    starts = jax.jit(jax.vmap(env.reset))(keys)
    alone = jax.jit(env.reset)(keys[5])

    leaves = [plain(leaf) for leaf in jtu.tree_leaves(starts.data)]
    assert any((leaf != leaf[:1]).any() for leaf in leaves)
    for batched, single in zip(leaves, jtu.tree_leaves(alone.data), strict=True):
        np.testing.assert_array_equal(batched[5], plain(single))


def test_describes_itself(env):
    assert isinstance(env, envs.DescribedEnv)
    assert isinstance(env.discrete, bool)
    assert env.action_size == (2 if env.discrete else 1)
    assert math.isfinite(env.max_episode_length)


def test_is_a_static_argument(env):
    """An equal environment that was built anew compiles nothing anew."""
    traces = []

    def start(env, key):
        traces.append(env)
        return env.reset(key).obs

    jitted = jax.jit(start, static_argnums=0)
    jitted(env, jr.key(0))
    jitted(jtu.tree_map(lambda leaf: leaf, env), jr.key(0))

    assert len(traces) == 1


@pytest.mark.parametrize("name", envs.available())
def test_equal_by_value(name):
    assert envs.make(name) == envs.make(name)
    assert hash(envs.make(name)) == hash(envs.make(name))


def test_different_names_are_different_environments():
    built = [envs.make(name) for name in envs.available()]
    for one, other in itertools.combinations(built, 2):
        assert one != other
