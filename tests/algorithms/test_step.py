import dataclasses
import functools as ft

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import jax.tree_util as jtu
import numpy as np
import pytest

from helpers import assert_close, small_config, small_network, tree_equal
from nnx_ppo_fn import new_training_state, ppo_step, Status
from nnx_ppo_fn.algorithms.optimizer import learning_rate_at
from nnx_ppo_fn.algorithms.update import minibatch_indices
from nnx_ppo_fn.envs import make


ENV = make("probe:counting")
CONFIG = small_config()
step = jax.jit(ppo_step, static_argnums=0)


def new_state(key=0, config=CONFIG, env=ENV):
    network = small_network(jr.key(7), ENV.observation_size)
    return new_training_state(env, network, config, key=jr.key(key))


@pytest.fixture(scope="module")
def state():
    return new_state()


@pytest.fixture(scope="module")
def stepped(state):
    return step(ENV, state, CONFIG)


def test_a_step_gives_a_state_of_the_same_kind(state, stepped):
    """Structure, shapes, dtypes and weak types, so that it scans and compiles once."""
    after, metrics = stepped
    assert jtu.tree_structure(after) == jtu.tree_structure(state)
    for old, new in zip(jtu.tree_leaves(state), jtu.tree_leaves(after), strict=True):
        assert old.aval == new.aval
    assert all(isinstance(leaf, jax.Array) for leaf in jtu.tree_leaves(after))
    assert int(after.env_steps) == 40 and after.status == Status.HEALTHY
    assert all(value.shape == () for value in metrics.values())


def test_learning_changes_parameters_and_statistics(state, stepped):
    after, metrics = stepped
    assert metrics["replay/log_ratio_max"] < 1e-5
    assert metrics["replay/log_ratio_last"] > 1e-5
    moved = jtu.tree_map(
        lambda a, b: bool(jnp.any(a != b)), state.parameters, after.parameters
    )
    assert all(jtu.tree_leaves(moved))
    steps = np.arange(5) % ENV.max_episode_length
    np.testing.assert_allclose(after.network[0].mean, [steps.mean()], rtol=1e-5)


def test_the_same_key_gives_the_same_bits_and_another_key_others(stepped):
    after, _ = stepped
    again, _ = step(ENV, new_state(), CONFIG)
    other, _ = step(ENV, new_state(key=1), CONFIG)
    assert tree_equal(after, again)
    assert not tree_equal(after.parameters, other.parameters)


def test_scanning_is_stepping(state, stepped):
    scanned, rows = jax.jit(
        lambda s: jax.lax.scan(lambda s, _: ppo_step(ENV, s, CONFIG), s, None, length=2)
    )(state)
    twice, metrics = step(ENV, stepped[0], CONFIG)
    assert_close(scanned, twice, tolerance=1e-4)
    assert_close(rows["losses/critic/mean"][1], metrics["losses/critic/mean"], 1e-4)


def test_mapping_over_seeds_and_learning_rates_is_running_them_one_by_one():
    network = small_network(jr.key(7), ENV.observation_size)
    keys = jnp.stack([jr.key(0), jr.key(1)])
    states = jax.vmap(lambda k: new_training_state(ENV, network, CONFIG, key=k))(keys)
    rates = jnp.array([1e-3, 1e-2])
    ppo = dataclasses.replace(CONFIG.ppo, learning_rate=rates)
    sweep = dataclasses.replace(CONFIG, ppo=ppo)
    axes = jtu.tree_map(lambda leaf: 0 if leaf is rates else None, sweep)
    mapped, _ = jax.jit(jax.vmap(ft.partial(ppo_step, ENV), in_axes=(0, axes)))(
        states, sweep
    )
    seeds, _ = jax.jit(
        lambda s, c: jax.vmap(ppo_step, in_axes=(None, 0, None))(ENV, s, c)
    )(states, CONFIG)
    for index, rate in enumerate(rates):
        one = dataclasses.replace(CONFIG.ppo, learning_rate=float(rate))
        alone, _ = step(ENV, new_state(index), dataclasses.replace(CONFIG, ppo=one))
        row = jtu.tree_map(lambda leaf, index=index: leaf[index], mapped)
        assert_close(row.parameters, alone.parameters, 1e-4)
        assert tree_equal(row.rollout_state.keys, alone.rollout_state.keys)
    first = jtu.tree_map(lambda leaf: leaf[0], seeds)
    assert_close(first.parameters, step(ENV, new_state(), CONFIG)[0].parameters, 1e-4)


def test_a_changed_coefficient_and_an_equal_environment_do_not_compile_anew(state):
    traces = 0

    def counted(env, state, config):
        nonlocal traces
        traces += 1
        return ppo_step(env, state, config)

    compiled = jax.jit(counted, static_argnums=0)
    after, _ = compiled(ENV, state, CONFIG)
    ppo = dataclasses.replace(
        CONFIG.ppo, learning_rate=3e-4, clip_range=0.1, discounting_factor=0.9
    )
    after, _ = compiled(ENV, after, dataclasses.replace(CONFIG, ppo=ppo))
    compiled(make("probe:counting"), after, CONFIG)
    compiled(ENV, new_state(5), CONFIG)
    assert traces == 1


def test_donating_the_state_deletes_nothing_of_the_callers():
    network = small_network(jr.key(7), ENV.observation_size)
    key = jr.key(0)
    state = new_training_state(ENV, network, CONFIG, key=key)
    donated = jax.jit(ppo_step, static_argnums=0, donate_argnums=1)
    after, _ = donated(ENV, state, CONFIG)
    donated(ENV, after, CONFIG)
    assert all(
        not leaf.is_deleted()
        for leaf in jtu.tree_leaves((network, key))
        if isinstance(leaf, jax.Array)
    )


def test_inference_mode_goes_on_the_network(state):
    silent = eqx.nn.inference_mode(state.network)
    carry = silent.initialize_state(jr.split(jr.key(0), 3))
    other = silent.initialize_state(jr.split(jr.key(1), 3))
    x = jnp.ones((3, 1))
    assert tree_equal(silent(carry, x).output, silent(other, x).output)


def test_the_learning_rate_falls_linearly_in_environment_steps():
    ppo = dataclasses.replace(
        CONFIG.ppo, learning_rate=1.0, learning_rate_final_fraction=0.1
    )
    rates = [learning_rate_at(ppo, jnp.float32(s)) for s in (0, 100, 200, 1000)]
    np.testing.assert_allclose(rates, [1.0, 0.55, 0.1, 0.1], rtol=1e-6)


def test_a_step_uses_the_learning_rate_of_its_environment_steps(stepped):
    """Where the budget is used up, a rate that falls to nothing moves no parameter."""
    ppo = dataclasses.replace(
        CONFIG.ppo, total_steps=40, learning_rate_final_fraction=0.0
    )
    before, _ = stepped
    after, metrics = step(ENV, before, dataclasses.replace(CONFIG, ppo=ppo))
    assert tree_equal(after.parameters, before.parameters)
    assert metrics["replay/log_ratio_last"] < 1e-5


def test_every_epoch_deals_out_every_environment_once():
    indices = minibatch_indices(CONFIG.ppo, jr.key(0))
    assert indices.shape == (4, 4)
    epochs = np.sort(indices.reshape(2, 8), axis=1)
    np.testing.assert_array_equal(epochs, np.tile(np.arange(8), (2, 1)))
    assert not jnp.array_equal(indices[:2], indices[2:])


def test_shards_are_dealt_out_by_themselves():
    ppo = dataclasses.replace(CONFIG.ppo, n_shards=2)
    indices = minibatch_indices(ppo, jr.key(0))
    assert indices.shape == (4, 2, 2)
    for epoch in np.asarray(indices).reshape(2, 2, 2, 2):
        for shard in np.moveaxis(epoch, 1, 0):
            np.testing.assert_array_equal(np.sort(shard, axis=None), np.arange(4))
    assert not jnp.array_equal(indices[:, 0], indices[:, 1])


def test_shards_learn_from_the_very_environments_that_were_dealt(state):
    """With one minibatch of everybody, in another order, an epoch is the same."""
    ppo = dataclasses.replace(CONFIG.ppo, n_minibatches=1)
    one, _ = step(ENV, state, dataclasses.replace(CONFIG, ppo=ppo))
    ppo = dataclasses.replace(ppo, n_shards=4)
    in_shards, _ = step(ENV, state, dataclasses.replace(CONFIG, ppo=ppo))
    assert_close(in_shards.parameters, one.parameters, tolerance=1e-4)


class Faulty(eqx.Module):
    """The counting probe; where the counter hits `at`, a field is what `info` says."""

    field: str
    at: int = 3

    def reset(self, key):
        state = ENV.reset(key)
        added = {"faulty": jr.bernoulli(key, 0.3), "value": jnp.float32(0)}
        return eqx.tree_at(lambda s: s.info, state, {**state.info, **added})

    def step(self, state, action):
        added = {name: state.info[name] for name in ("faulty", "value")}
        next_state = ENV.step(state, action)
        broken = added["faulty"] & (next_state.obs[0] == self.at)
        info = {**next_state.info, **added}
        next_state = eqx.tree_at(lambda s: s.info, next_state, info)
        return eqx.tree_at(
            lambda s: getattr(s, self.field),
            next_state,
            jnp.where(broken, added["value"], getattr(next_state, self.field)),
        )


@ft.cache
def before_a_fault(field):
    """An environment, and a training in it, whose fault has no value yet."""
    env = Faulty(field)
    return env, new_state(env=env)


def about_to_fail(field, value):
    """They compile once for all values of a field."""
    env, state = before_a_fault(field)
    values = jnp.full(CONFIG.ppo.n_envs, value, jnp.float32)
    return env, eqx.tree_at(
        lambda s: s.rollout_state.env_state.info["value"], state, values
    )


@pytest.mark.parametrize(
    "field, value, status",
    [
        ("reward", jnp.nan, Status.REWARD_NOT_FINITE),
        ("reward", -jnp.inf, Status.REWARD_NOT_FINITE),
        ("obs", jnp.nan, Status.OBSERVATION_NOT_FINITE),
        ("obs", jnp.inf, Status.OBSERVATION_NOT_FINITE),
    ],
)
def test_a_number_that_is_not_finite_stops_training_and_spoils_nothing(
    field, value, status
):
    env, state = about_to_fail(field, value)
    after, _ = step(env, state, CONFIG)
    assert after.status == status
    first = int(jnp.argmax(state.rollout_state.env_state.info["faulty"]))
    assert after.fault_environment == first
    unchanged = eqx.tree_at(
        lambda s: (s.status, s.fault_environment),
        after,
        (state.status, state.fault_environment),
    )
    assert tree_equal(unchanged, state)
    again, _ = step(env, after, CONFIG)
    assert tree_equal(again, after)


def test_a_reward_that_only_the_optimiser_cannot_take_stops_training_too():
    """A finite one, whose gradient's square is not: Adam would stand still for ever."""
    after, _ = step(*about_to_fail("reward", 1e25), CONFIG)
    assert after.status == Status.UPDATE_NOT_FINITE


def test_more_steps_than_an_int32_holds(state):
    ppo = dataclasses.replace(CONFIG.ppo, total_steps=5_000_000_000)
    after, _ = step(ENV, state, dataclasses.replace(CONFIG, ppo=ppo))
    assert after.status == Status.HEALTHY
    rate = learning_rate_at(
        dataclasses.replace(ppo, learning_rate_final_fraction=0.0), jnp.float32(2.5e9)
    )
    np.testing.assert_allclose(rate, 0.5 * ppo.learning_rate, rtol=1e-6)


def test_an_update_that_overflows_is_undone(state):
    ppo = dataclasses.replace(CONFIG.ppo, learning_rate=float("inf"))
    after, _ = step(ENV, state, dataclasses.replace(CONFIG, ppo=ppo))
    assert after.status == Status.UPDATE_NOT_FINITE
    assert tree_equal(after.parameters, state.parameters)


def test_a_masked_step_does_not_enter_the_statistics(state):
    """Steps 0 to 4 are seen; the truncated one is left out."""
    ppo = dataclasses.replace(CONFIG.ppo, truncation="mask", rollout_length=5)
    after, _ = step(ENV, state, dataclasses.replace(CONFIG, ppo=ppo))
    steps = np.arange(5) % ENV.max_episode_length
    kept = steps[steps != ENV.max_episode_length - 1]
    assert len(kept) < len(steps)
    np.testing.assert_allclose(after.network[0].mean, [kept.mean()], rtol=1e-5)


def test_a_state_for_other_environments_is_refused(state):
    with pytest.raises(ValueError, match="holds 8 environments.*n_envs=16"):
        ppo_step(ENV, state, small_config(n_envs=16))
