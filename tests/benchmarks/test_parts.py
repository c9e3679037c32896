"""The smaller parts of the benchmark."""

import itertools

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from benchmarks import ring, timing
from benchmarks.networks import NETWORKS
from benchmarks.ring import Ring
from benchmarks.settings import parse, QUICK, Settings
from benchmarks.storage import storage_of
from benchmarks.table import columns, markdown, number
from benchmarks.timing import Spread, take_turns
from nnx_ppo_fn import initial_rollout_state, partition_trainable, unroll_env


def test_quartiles():
    assert Spread.of([4.0, 1.0, 3.0, 2.0, 5.0]) == (2.0, 3.0, 4.0)


def test_programs_take_turns_after_two_calls_that_warm_them_up():
    log = []

    def program(name, seconds):
        return lambda: log.append(name) or seconds

    programs = {"a": program("a", 1.0), "b": program("b", 2.0)}
    timings = take_turns(programs, repeats=4, seconds=100.0)
    assert "".join(log) == "aabb" + "ab" + "ba" + "ab" + "ba"
    assert timings["b"] == (2.0, 2.0, (2.0,) * 4)


def test_three_repeats_are_made_however_long_they_take(monkeypatch):
    monkeypatch.setattr(timing.time, "perf_counter", itertools.count(0, 60).__next__)
    timings = take_turns({"a": lambda: 60.0}, repeats=9, seconds=1.0)
    assert len(timings["a"].calls) == 3


def test_the_ring_turns():
    env = Ring()
    state = env.reset(jr.key(0))
    numbers = np.asarray(state.obs)
    for _ in range(8):
        best = 0.5 * state.obs[:8]
        state = env.step(state, best)
        assert state.reward == 0
    np.testing.assert_array_equal(state.obs, numbers)
    wrong = env.step(state, 0.5 * state.obs[:8] + 2)
    np.testing.assert_allclose(wrong.reward, -4, rtol=1e-6)


def test_an_episode_ends_at_the_last_time():
    place = ring.Place(jnp.zeros(64), jnp.int32(ring.EPISODE_LENGTH - 2))
    place, _, ended = ring.move(place, jnp.zeros(8))
    assert not ended
    assert ring.move(place, jnp.zeros(8))[2]


def test_networks_have_the_sizes_that_the_peer_was_measured_with():
    def parameters(make):
        trained = jax.eval_shape(lambda key: partition_trainable(make(key))[0], KEY)
        return sum(leaf.size for leaf in jax.tree_util.tree_leaves(trained))

    counted = {name: parameters(make) for name, make in NETWORKS.items()}
    # 64 to 128 with four gates, and heads of 64.
    assert counted["lstm"] == 4 * 128 * (64 + 128 + 1) + 17_617
    assert counted["variational"] == 33_088 + 12_560 + 8_705
    # Two of 64 to 128, three of 128 to 128, two of 128 to 16, two of 128 to 1.
    assert counted["graph"] == 2 * 8_320 + 3 * 16_512 + 2 * 2_064 + 2 * 129


KEY = jr.key(0)


class Compiled:
    """A compiled program that says what the test wants."""

    def __init__(self, text):
        self.as_text = lambda: text


def test_storage_is_read_from_the_longest_rollout_loop(rollout_shapes):
    loop = (
        "  %while.1 = (s32[], f32[7,4,3]{{2,1,0}}, /*index=5*/pred[7,4]{{1,0}}, "
        "u32[4,2]{{1,0}}, f32[4,7]{{1,0}}) while(%tuple), "
        'backend_config={{"known_trip_count":{{"n":"{trips}"}}}}\n'
    )
    found = storage_of(Compiled(loop.format(trips=7)), rollout_shapes)
    # 3 floats and a flag per step; the others are no buffers of steps.
    assert found.stored == 3 * 4 + 1
    assert storage_of(Compiled(loop.format(trips=5)), rollout_shapes) is None
    assert storage_of(Compiled("no loops"), rollout_shapes) is None


@pytest.fixture
def rollout_shapes():
    env, network = Ring(), NETWORKS["mlp"](KEY)

    def collect(key):
        state = initial_rollout_state(env, network, jr.split(key, 4))
        return unroll_env(env, network, state, 7)[1]

    return jax.eval_shape(collect, KEY)


def test_the_command_line():
    settings = parse(
        ["--networks", "mlp,gru", "--environments", "64,256", "--rollout-length", "16"]
    )
    assert settings == Settings(
        networks=("mlp", "gru"), environments=(64, 256), rollout_lengths=(16,)
    )
    assert [cell[:3] for cell in settings.cells()] == [
        ("mlp", 64, 16),
        ("gru", 64, 16),
        ("mlp", 256, 16),
        ("gru", 256, 16),
    ]
    assert parse(["--quick"]) == QUICK
    assert parse(["--quick", "--seeds", "0", "--peers"]).seeds == 0
    assert parse(["--restarts"]).restarts and not parse([]).restarts


@pytest.mark.parametrize(
    "words, said",
    [
        (["--networks", "mpl"], "unknown network 'mpl'; there are mlp"),
        (["--environments", "6"], "expected multiples of 4"),
        (["--rollout-length", "0"], "expected numbers from 1 on"),
    ],
)
def test_what_cannot_be_measured_is_refused(words, said, capsys):
    with pytest.raises(SystemExit):
        parse(words)
    assert said in capsys.readouterr().err


def test_columns_of_digits_stand_to_the_right():
    table = [("name", "size"), ("a", "5"), ("long name", "120")]
    assert columns(table).splitlines() == [
        "name       size",
        "---------  ----",
        "a             5",
        "long name   120",
    ]
    assert markdown(table).splitlines()[1:3] == ["| --- | --- |", "| a | 5 |"]


def test_numbers_in_words():
    assert [number(x) for x in (2.5e11, 1_234_567, 12.3)] == [
        "250 G",
        "1.23 M",
        "12.3 ",
    ]
