"""Which runs belong together, and what their mean and spread are."""

import json

import numpy as np
import pytest

from nnx_ppo_fn.cli.grouping import find_runs, group_runs, labels
from nnx_ppo_fn.cli.usage import UsageError


METRIC = "eval/episode_reward/mean"


@pytest.fixture
def write(tmp_path):
    """A function that writes the part of a run that is read here."""

    def write(name, points, *, env="a", policy="mlp", seed=0, metric=METRIC, **ppo):
        folder = tmp_path / name
        folder.mkdir(parents=True)
        train = {"ppo": ppo, "seed": seed, "iterations_per_call": seed}
        description = {"environment": env, "policy": policy, "train": train}
        (folder / "config.json").write_text(json.dumps(description))
        lines = [json.dumps({"step": step, metric: x}) for step, x in points]
        (folder / "metrics.jsonl").write_text("\n".join(lines))
        return folder

    return write


def test_runs_that_differ_in_the_seed_are_one_group(write, tmp_path):
    write("b/seed1", [(0, 0.0), (10, 4.0), (20, 6.0)], seed=1)
    write("b/seed0", [(0, 2.0), (10, 2.0), (20, None), (30, 9.0)], seed=0)
    write("other", [(0, 1.0)], policy="gru")
    gru, mlp = sorted(
        group_runs(find_runs([tmp_path]), METRIC)[0],
        key=lambda group: len(group.curves),
    )
    steps, mean, spread = mlp.mean_and_spread()
    # As far as both go: at 20, one is half way from 2 at 10 to 9 at 30.
    np.testing.assert_array_equal(steps, [0, 10, 20])
    np.testing.assert_allclose(mean, [1.0, 3.0, (6.0 + 5.5) / 2])
    np.testing.assert_allclose(spread, [1.0, 1.0, 0.25])
    assert [len(group.curves) for group in (gru, mlp)] == [1, 2]


def test_a_run_counts_once(write, tmp_path):
    folder = write("runs/x", [(0, 1.0)])
    assert find_runs([tmp_path, folder, tmp_path / "runs"]) == [folder]


def test_labels_say_what_differs(write):
    runs = [
        write("a", [(0, 1.0)], policy="mlp", learning_rate=1e-3),
        write("b", [(0, 1.0)], policy="mlp", learning_rate=1e-2),
        write("c", [(0, 1.0)], policy="gru", learning_rate=1e-3),
    ]
    title, names = labels(group_runs(runs, METRIC)[0])
    assert title == "a"
    assert names == [
        "mlp, learning_rate 0.001 (1 seed)",
        "mlp, learning_rate 0.01 (1 seed)",
        "gru, learning_rate 0.001 (1 seed)",
    ]


def test_environments_are_not_told_apart_by_their_presets(write):
    runs = [
        write("a", [(0, 1.0)], env="a", total_steps=1),
        write("b", [(0, 1.0)], env="b", total_steps=2),
    ]
    title, names = labels(group_runs(runs, METRIC)[0])
    assert (title, names) == ("mlp", ["a (1 seed)", "b (1 seed)"])


def test_seeds_alone_need_no_name(write):
    runs = [write(f"{seed}", [(0, 1.0)], seed=seed) for seed in range(2)]
    assert labels(group_runs(runs, METRIC)[0]) == ("a · mlp", ["2 seeds"])


def test_the_same_seed_twice_is_one_seed(write):
    runs = [write(f"{n}", [(0, 1.0)], seed=seed) for n, seed in enumerate((3, 3, 4))]
    assert labels(group_runs(runs[:2], METRIC)[0])[1] == ["2 runs of 1 seed"]
    assert labels(group_runs(runs, METRIC)[0])[1] == ["3 runs of 2 seeds"]


def test_seeds_without_common_steps_have_no_mean(write):
    runs = [write("a", [(0, 1.0)], seed=0), write("b", [(5, 1.0)], seed=1)]
    ((group,), _) = group_runs(runs, METRIC)
    assert [len(part) for part in group.mean_and_spread()] == [0, 0, 0]


def test_what_cannot_be_compared(write, tmp_path):
    with pytest.raises(UsageError, match="there is no folder"):
        find_runs([tmp_path / "nothing"])
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError, match="holds no run"):
        find_runs([tmp_path / "empty"])
    run = write("a", [(0, 1.0)])
    with pytest.raises(UsageError, match="did you mean 'eval/episode_reward/mean'"):
        group_runs([run], "eval/episode_rewards/mean")
    with pytest.raises(UsageError, match="no finite value"):
        group_runs([write("b", [(0, None)])], METRIC)


@pytest.mark.parametrize(
    ("name", "text", "complaint"),
    [
        ("config.json", "[]", "damaged or of another version: it does not hold"),
        ("config.json", '{"policy": "mlp"}', "does not say which 'environment'"),
        ("config.json", '{"environment": 3}', "'environment' is not a name"),
        ("config.json", "{", "config.json is damaged"),
        ("metrics.jsonl", "[1]", "metrics.jsonl, line 1: expected numbers by name"),
        ("metrics.jsonl", '{"a": 1}', "line 1: expected numbers by name, with a step"),
        ("metrics.jsonl", '{"step": "a"}', "with a step"),
        ("metrics.jsonl", '{"step": 1, "a": "b"}', "expected a number as 'a', got 'b'"),
        ("metrics.jsonl", '{"step": 1}\n{\n{"step": 2}', "metrics.jsonl, line 2: "),
        ("metrics.jsonl", "", "has no metric"),
    ],
)
def test_a_damaged_run_is_left_out(name, text, complaint, write):
    good, bad = write("good", [(0, 1.0)]), write("bad", [(0, 2.0)])
    (bad / name).write_text(text)
    ((group,), (problem,)) = group_runs([bad, good], METRIC)
    assert [curve.path for curve in group.curves] == [good]
    assert complaint in problem and str(bad) in problem and "\n" not in problem
    with pytest.raises(UsageError) as refusal:
        group_runs([bad], METRIC)
    assert str(refusal.value) == problem


def test_a_last_line_that_was_cut_short_is_no_damage(write):
    run = write("a", [(0, 1.0), (5, 2.0), (9, 3.0)])
    metrics = run / "metrics.jsonl"
    metrics.write_text(metrics.read_text()[:-4])
    (group,), left_out = group_runs([run], METRIC)
    np.testing.assert_array_equal(group.curves[0].steps, [0, 5])
    assert left_out == []
