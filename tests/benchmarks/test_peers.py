"""The peers run beside this library, each on the same environment and sizes."""

import importlib
import importlib.util

import jax
import jax.random as jr
import numpy as np
import pytest

from benchmarks import running
from benchmarks.peers import borders
from benchmarks.peers.borders import as_released, find_peers, PEERS
from benchmarks.ring import Ring
from benchmarks.settings import Cell, Settings


def test_peers_are_run_and_compared(monkeypatch):
    """The step of the MLP alone: it is what all of them have."""
    found, _ = find_peers()
    assert {"nnx-ppo", "Brax"} <= set(found)
    settings = Settings(
        networks=("mlp",),
        environments=(4,),
        rollout_lengths=(2,),
        peers=True,
        repeats=3,
        seconds=0.0,
        seeds=0,
        iterations=0,
        quick=True,
    )
    monkeypatch.setattr(Settings, "cells", lambda _: [Cell("mlp", 4, 2, ("step",))])
    lines = []
    results = running.run(settings, lines.append)
    rows = {row.library: row for row in results.rows}
    assert set(rows) == {"nnx_ppo_fn", *found}
    assert rows["nnx-ppo"].parameters == rows["nnx_ppo_fn"].parameters
    assert rows["Brax"].parameters == rows["nnx_ppo_fn"].parameters
    ratios = {ratio.peer: ratio for ratio in results.ratios}
    assert set(ratios) == set(found)
    for ratio in ratios.values():
        assert 0 < ratio.speed.lower_quartile <= ratio.speed.upper_quartile
    assert "mlp, 4 environments, 2 steps (1 of 1)" in lines


def test_a_peer_that_is_not_installed_is_named(monkeypatch):
    def refuse(name):
        raise ImportError(f"No module named {name!r}")

    monkeypatch.setattr(borders.importlib, "import_module", refuse)
    found, missing = find_peers()
    assert found == {} and set(missing) == set(PEERS)
    assert missing["rejax"].startswith("pip install rejax")


@pytest.mark.parametrize("name", ["nnx_ppo_0_3", "brax_ppo", "rejax_ppo"])
def test_every_peer_has_the_same_environment(name):
    if name == "rejax_ppo" and importlib.util.find_spec("rejax") is None:
        pytest.skip("rejax is not installed")
    with as_released():
        module = importlib.import_module(f"benchmarks.peers.{name}")
    make = module.Ring if name == "rejax_ppo" else module._Ring
    theirs, ours = make(), Ring()
    key, action = jr.key(3), jax.numpy.full(8, 0.25)
    expected = ours.step(ours.reset(key), action)
    if name == "rejax_ppo":
        _, state = theirs.reset(key, theirs.default_params)
        got = theirs.step(key, state, action, theirs.default_params)
        obs, reward, done = got[0], got[2], got[3]
    else:
        state = theirs.step(theirs.reset(key), action)
        obs, reward, done = state.obs, state.reward, state.done
    np.testing.assert_array_equal(obs, expected.obs)
    assert reward == expected.reward
    assert not done and not expected.done
