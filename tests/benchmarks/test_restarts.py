"""Ways to begin episodes anew: where each of them begins."""

import functools as ft

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from benchmarks import restart_ways, restarts
from benchmarks.episodes import Episodes, LENGTHS
from benchmarks.restart_ways import restarting, WAYS
from benchmarks.stock import Stocking
from kernels import AS_USERS
from nnx_ppo_fn import algorithms
from nnx_ppo_fn._keys import advance_keys
from nnx_ppo_fn.algorithms import rollout
from nnx_ppo_fn.algorithms.environments import reset_all, step_all


ENVIRONMENTS, STEPS = 5, 40
FRESH = ["library", "always", "if any", "groups", "few or all", "own spare"]


@ft.cache
def starts_of(name, ends="always"):
    """The first observations of each environment's episodes, in turn."""
    way = WAYS[name]
    env = Episodes(ends)
    acting = Stocking(env) if way.stocks else env
    restart = way.restart or ft.partial(rollout.restart, n_shards=1)
    actions = jnp.zeros((ENVIRONMENTS, 8))

    def step(carry, _):
        keys, state = carry
        stepped = step_all(acting, state, actions)
        keys, state = restart(acting, stepped.done, keys, stepped)
        return (keys, state), (stepped.done, state.done, state.obs)

    @ft.partial(jax.jit, compiler_options=AS_USERS)
    def play(key):
        keys, draws = advance_keys(jr.split(key, ENVIRONMENTS))
        state = reset_all(acting, draws)
        _, (ended, done, obs) = jax.lax.scan(step, (keys, state), length=STEPS)
        return state.obs, ended, done, obs

    first, ended, done, obs = map(np.asarray, play(jr.key(3)))
    assert not done.any()
    return [np.stack([first[i], *obs[ended[:, i], i]]) for i in range(ENVIRONMENTS)]


@ft.cache
def links(ends="always", length=25):
    """The starts that follow from each environment's own chain of keys."""
    env = Episodes(ends)

    def of_one(chain):
        def link(chain, _):
            chain, draw = advance_keys(chain)
            return chain, env.reset(draw).obs

        return jax.lax.scan(link, chain, length=length)[1]

    of_each = jax.jit(jax.vmap(of_one), compiler_options=AS_USERS)
    return np.asarray(of_each(jr.split(jr.key(3), ENVIRONMENTS)))


@pytest.fixture(autouse=True)
def small_groups(monkeypatch):
    monkeypatch.setattr(restart_ways, "GROUP", 2)
    monkeypatch.setattr(algorithms.restarts, "LEAST_AT_A_TIME", 2)


@pytest.mark.parametrize("ends", ["always", "together"])
@pytest.mark.parametrize("name", FRESH)
def test_an_environment_begins_where_its_own_chain_says(name, ends):
    found = starts_of(name, ends)
    assert sum(map(len, found)) > 4 * ENVIRONMENTS
    for starts, expected in zip(found, links(ends), strict=True):
        np.testing.assert_array_equal(starts, expected[: len(starts)])


def test_starts_from_a_pool_are_distinct_but_another_environments():
    found = starts_of("pool")
    starts = np.concatenate(found)
    assert len(np.unique(starts, axis=0)) == len(starts) > 4 * ENVIRONMENTS
    everybodys = {start.tobytes() for start in np.concatenate(links())}
    assert {start.tobytes() for start in starts} <= everybodys
    own = [
        np.array_equal(starts, expected[: len(starts)])
        for starts, expected in zip(found, links(), strict=True)
    ]
    assert not all(own)


def test_the_first_state_is_all_that_there_is():
    for starts, expected in zip(starts_of("first state"), links(), strict=True):
        assert len(starts) > 1
        np.testing.assert_array_equal(starts, np.stack([expected[0]] * len(starts)))


def test_nobody_begins_anew_where_nothing_ends():
    assert [len(starts) for starts in starts_of("own spare", "never")] == [1] * 5


def test_lengths_have_the_means_that_they_are_said_to_have():
    keys = jr.split(jr.key(0), 4000)
    for ends, mean in {"seldom": 2560, "often": 500, "always": 8}.items():
        lengths = jax.vmap(LENGTHS[ends])(keys)
        assert lengths.min() >= 1
        # Five standard errors of an exponential distribution.
        assert abs(lengths.mean() / mean - 1) < 5 / 4000**0.5 + 0.5 / mean


def test_a_costly_reset_keeps_the_size_of_a_start():
    cheap, costly = (Episodes("never", costly).reset(jr.key(0)) for costly in (0, 1))
    assert np.abs(cheap.obs - costly.obs).max() > 0.1
    np.testing.assert_allclose(
        np.linalg.norm(cheap.obs), np.linalg.norm(costly.obs), rtol=1e-4
    )


def test_rollouts_restart_in_the_way_that_is_measured(monkeypatch):
    asked = []

    def restart(env, done, keys, state):
        asked.append(type(env))
        return keys, state

    own = rollout.restart
    way = restart_ways.Way(restart, True, "all restarts")
    monkeypatch.setattr(restarts, "WAYS", {"library": WAYS["library"], "none": way})
    monkeypatch.setattr(restarts, "LENGTHS", {"never": LENGTHS["never"]})
    lines = []
    measured = restarts.measure_restarts(
        repeats=3, seconds=0.0, environments=2, steps=2, tell=lines.append
    )
    assert set(asked) == {Stocking} and rollout.restart is own
    assert [(one.reset, one.way) for one in measured] == [
        ("cheap", "library"),
        ("cheap", "none"),
        ("costly", "library"),
        ("costly", "none"),
    ]
    for one in measured:
        assert one.environments == 2 and one.seconds_per_step.median > 0
        assert (one.ratio == (1.0, 1.0, 1.0)) == (one.way == "library")
    assert lines == [
        "restarts: a cheap reset, episodes end never",
        "restarts: a costly reset, episodes end never",
    ]


def test_the_librarys_way_is_back_after_an_error():
    own = rollout.restart
    with pytest.raises(ZeroDivisionError), restarting(WAYS["pool"]):
        assert rollout.restart is not own
        1 / 0  # noqa: B018
    assert rollout.restart is own
