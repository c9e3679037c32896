"""Fresh starts for a few at a time, against a reset of all and a select."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from helpers import assert_close
from nnx_ppo_fn._keys import advance_keys
from nnx_ppo_fn._tree import select
from nnx_ppo_fn.algorithms import restarts
from nnx_ppo_fn.algorithms.restarts import restart
from nnx_ppo_fn.envs import State


class Kinds(eqx.Module):
    """An environment whose state has leaves of all kinds; `told` counts its resets."""

    told: list | None = eqx.field(static=True, default=None)

    def reset(self, key):
        if self.told is not None:
            jax.debug.callback(lambda _: self.told.append(1), jr.key_data(key))
        own, number, place = jr.split(key, 3)
        data = {
            "key": own,
            "whole": jr.randint(number, (2,), 0, 1000),
            "flag": jr.bernoulli(number),
            "matrix": jr.normal(place, (2, 3)),
        }
        return State.create(
            data, jr.uniform(place, (3,)), 0.0, terminated=False, truncated=False
        )

    def step(self, state, action):
        raise NotImplementedError


def dtypes(tree):
    return [leaf.dtype for leaf in jax.tree.leaves(tree)]


def somewhere(batch):
    """Chains of keys, and states that no reset makes: numbers of theirs are NaN."""
    keys = jr.split(jr.key(1), batch)
    state = jax.vmap(Kinds().reset)(jr.split(jr.key(2), batch))
    return keys, jax.tree.map(
        lambda x: x * jnp.nan if x.dtype == jnp.float32 else x, state
    )


def all_at_once(done, keys, state):
    chain, starts = advance_keys(keys)
    return select(done, (chain, jax.vmap(Kinds().reset)(starts)), (keys, state))


run = jax.jit(restart, static_argnums=(0, 4))


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_everybody_gets_what_resetting_all_would_give(data):
    batch, n_shards = data.draw(
        st.sampled_from(
            [(1, 1), (16, 1), (17, 1), (40, 1), (40, 2), (120, 5), (512, 2)]
        )
    )
    likely = data.draw(st.sampled_from([0.0, 0.05, 0.5, 1.0]))
    seed = data.draw(st.integers(0, 2**31))
    done = jnp.asarray(np.random.default_rng(seed).random(batch) < likely)
    keys, state = somewhere(batch)
    got = run(Kinds(), done, keys, state, n_shards)
    expected = all_at_once(done, keys, state)
    assert_close(got, expected, 1e-6)
    assert dtypes(got) == dtypes(expected)
    assert np.isnan(got[1].obs).any(axis=1).tolist() == (~done).tolist()


@pytest.mark.parametrize(
    ("batch", "ended", "resets"),
    [(64, 0, 0), (64, 1, 16), (64, 16, 16), (64, 17, 32), (512, 20, 32), (8, 3, 8)],
)
def test_no_more_are_reset_than_are_needed_by_groups(batch, ended, resets):
    """Groups of 16, or of a sixteenth of many."""
    told = []
    env = Kinds(told)
    done = (
        jnp.zeros(batch, jnp.bool_).at[jnp.arange(ended) * (batch // 20 or 1)].set(True)
    )
    keys, state = somewhere(batch)
    jax.block_until_ready(jax.jit(lambda *a: restart(env, *a, 1))(done, keys, state))
    jax.effects_barrier()
    assert len(told) == resets


def test_runs_side_by_side_do_not_notice_each_other():
    keys, state = somewhere(40)
    dones = jnp.stack([jnp.arange(40) < n for n in (0, 3, 40)])
    together = jax.vmap(lambda done: restart(Kinds(), done, keys, state, 1))(dones)
    for row, done in enumerate(dones):
        ours = jax.tree.map(lambda leaf, row=row: leaf[row], together)
        assert_close(ours, run(Kinds(), done, keys, state, 1), 1e-6)


def test_a_reset_is_compiled_once():
    """However many environments there are."""
    for batch in (8, 64):
        keys, state = somewhere(batch)
        done = jnp.zeros(batch, jnp.bool_)
        text = str(
            jax.make_jaxpr(lambda *a: restart(Kinds(), *a, 1))(done, keys, state)
        )
        assert text.count("name=_randint") == 1


def test_other_devices_reset_all_at_once(monkeypatch):
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    told = []
    keys, state = somewhere(64)
    done = jnp.arange(64) == 5
    env = Kinds(told)
    jax.block_until_ready(jax.jit(lambda *a: restart(env, *a, 1))(done, keys, state))
    jax.effects_barrier()
    assert len(told) == 64 > restarts.LEAST_AT_A_TIME


@pytest.mark.parametrize("batch", [8, 40])
def test_a_state_of_other_types_is_refused(batch):
    keys, state = somewhere(batch)
    done = jnp.zeros(batch, jnp.bool_)
    narrow = eqx.tree_at(lambda state: state.obs, state, state.obs.astype(jnp.int8))
    said = r"state.obs is float32\[3\] after env.reset, but int8\[3\] in the state"
    with pytest.raises(TypeError, match=said):
        run(Kinds(), done, keys, narrow, 1)
    wide = eqx.tree_at(lambda state: state.obs, state, state.obs[:, :1])
    with pytest.raises(TypeError, match=r"float32\[3\] .* but float32\[1\]"):
        run(Kinds(), done, keys, wide, 1)


def test_environments_may_be_placed_by_explicit_axes():
    """With one device as with several; `ppo_step` on four is tested elsewhere."""
    explicit = (jax.sharding.AxisType.Explicit,)
    mesh = jax.make_mesh((1,), ("environments",), axis_types=explicit)
    place = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("environments"))
    keys, state = somewhere(40)
    done = jnp.arange(40) % 3 == 0
    placed = jax.tree.map(lambda leaf: jax.device_put(leaf, place), (done, keys, state))
    with jax.set_mesh(mesh):
        got = run(Kinds(), *placed, 1)
    assert_close(got, run(Kinds(), done, keys, state, 1), 1e-6)
