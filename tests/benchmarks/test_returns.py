"""What every library learns is played in one environment, and compared."""

import dataclasses
import importlib
import importlib.util

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from benchmarks import __main__ as command, ours, returns
from benchmarks.device import Device
from benchmarks.json_file import read_json
from benchmarks.page import HEADING, pasted, RETURNS_HEADING
from benchmarks.peers.borders import as_released
from benchmarks.playing import best, mean_return, still
from benchmarks.returns import Learned, measure_returns, training
from benchmarks.ring import start
from benchmarks.settings import parse, Settings


def test_a_turn_of_the_ring_is_what_an_episode_consists_of():
    """1000 steps are 125 turns, and in each all the numbers come by."""
    key = jr.key(5)
    numbers = np.asarray(
        jax.vmap(start)(jr.split(key, 4)).numbers, dtype=np.float64
    ).ravel()
    nothing = -1000 * np.mean(np.square(0.5 * numbers))
    beyond_reach = np.maximum(np.abs(0.5 * numbers) - 1, 0)
    got = mean_return(still, episodes=4, key=key)
    assert got == pytest.approx(nothing, rel=1e-5)
    got = mean_return(best, episodes=4, key=key)
    assert got == pytest.approx(-1000 * np.mean(np.square(beyond_reach)), rel=1e-4)


LEARNERS = [
    "ours",
    "peers.nnx_ppo_0_3",
    "peers.brax_ppo",
    # With another actor, and all else as in "peers.rejax_ppo".
    "peers.rejax_squashed",
]


@pytest.mark.parametrize("name", LEARNERS)
def test_what_a_library_has_learned_can_be_read_out(name):
    if "rejax" in name and importlib.util.find_spec("rejax") is None:
        pytest.skip("rejax is not installed")
    with as_released():
        library = importlib.import_module(f"benchmarks.{name}")
    config = dataclasses.replace(training(1), n_envs=4, rollout_length=2)
    numbers = jr.normal(jr.key(0), (3, 64))
    policies = [
        library.learn(dataclasses.replace(config, total_steps=steps), 7)
        for steps in (0, 8)
    ]
    untrained, trained = (jax.jit(policy)(numbers) for policy in policies)
    assert untrained.shape == (3, 8)
    assert jnp.all(jnp.abs(trained) <= 1) and jnp.any(untrained != trained)
    # Without noise, and each row by itself.
    np.testing.assert_allclose(
        policies[1](numbers[1:2]), trained[1:2], rtol=1e-4, atol=1e-5
    )


def test_every_library_gets_the_same_settings_and_seeds(monkeypatch):
    asked = []

    class Peer:
        @staticmethod
        def learn(config, seed):
            asked.append((config, seed))
            return best if config.total_steps else still

    monkeypatch.setattr(ours, "learn", Peer.learn)
    monkeypatch.setattr(returns, "mean_return", lambda policy: float(policy is best))
    settings = Settings(return_seeds=(3, 5), return_iterations=2)
    lines = []
    found = measure_returns(settings, {"a peer": Peer}, lines.append)
    before, after = training(0), training(2)
    assert asked == [(before, 3), (after, 3), (before, 5), (after, 5)] * 2
    assert found.libraries == [
        Learned("nnx_ppo_fn", (0.0, 0.0), (1.0, 1.0)),
        Learned("a peer", (0.0, 0.0), (1.0, 1.0)),
    ]
    assert (found.steps, found.updates) == (2 * 128 * 8, 2 * 16)
    assert lines[-1] == "a peer learns, seed 5"


def test_means_agree_where_they_are_within_the_spread_of_the_seeds():
    ours = Learned("ours", (0.0,), (-30.0, -33.0, -30.0))
    assert (ours.mean, ours.spread) == (-31, 3)
    assert ours.agrees_with(Learned("near", (0.0,), (-34.0, -34.0, -34.0)))
    assert not ours.agrees_with(Learned("far", (0.0,), (-34.5, -34.5, -34.5)))


def test_returns_alone_are_written_and_pasted(monkeypatch, tmp_path, capsys):
    learned = [
        Learned("nnx_ppo_fn", (-250.0, -260.0), (-31.0, -33.0)),
        Learned("near", (-250.0, -260.0), (-31.0, -31.0)),
        Learned("far", (-250.0, -260.0), (-50.0, -51.0)),
    ]
    found = returns.Returns((0, 1), 2048, 32, 256, -2.88, -250.0, learned)
    monkeypatch.setattr("benchmarks.running.measure_returns", lambda *_: found)
    machine = Device("a machine", "cpu", 1, 2, "3.11", "0.10", 1e9, 1e9)
    monkeypatch.setattr("benchmarks.running.describe_device", lambda: machine)
    words = ["--returns", "--no-speed", "--return-seeds", "0,1"]
    results = command.main([*words, "--output", str(tmp_path)])
    assert results.returns == found and results.rows == []
    assert read_json(tmp_path / "benchmark.json") == results
    assert not (tmp_path / "benchmark.png").exists()
    said = capsys.readouterr().out
    assert "2,048 environment steps and 32 gradient steps" in said
    page = f"{HEADING}\n\nspeeds\n\n{RETURNS_HEADING}\n\nold\n"
    new = pasted(page, results)
    assert "speeds" in new and "old" not in new
    assert "| near | -255.0 | -31.0 | -31.0 | -31.0 | 0.0 | within the spread |" in new
    assert "| far | -255.0 | -50.0 | -51.0 | -50.5 | 1.0 | -18.5 |" in new
    assert pasted(new, results) == new


def test_the_command_line():
    settings = parse(["--quick", "--returns", "--no-speed"])
    assert settings.returns and settings.cells() == []
    assert parse([]).speed and not parse([]).returns
