"""One tiny cell through the whole benchmark."""

import dataclasses
import functools as ft
import json
import os

import pytest

from benchmarks import __main__ as command, agents, restarts, running
from benchmarks.json_file import read_json, write_json
from benchmarks.page import HEADING, pasted, RESTARTS_HEADING
from benchmarks.programs import MEASURES, SPREAD
from benchmarks.records import times_floor, times_products
from benchmarks.settings import Cell, Settings
from benchmarks.table import report, rows_table
from nnx_ppo_fn.algorithms.spreading import available_cores


@pytest.fixture(scope="module")
def output(tmp_path_factory):
    return tmp_path_factory.mktemp("benchmark")


@pytest.fixture(scope="module")
def results(output):
    """Of the smallest run that has everything of this library in it."""
    settings = Settings(
        networks=("mlp",),
        environments=(4,),
        rollout_lengths=(2,),
        repeats=3,
        seconds=0.0,
        seeds=2,
        agent_iterations=1,
        iterations=4,
        restarts=True,
        output=output,
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(command, "parse", lambda _: settings)
        # The preset's MLP compiles faster than its LSTM.
        patch.setattr(agents, "POLICY", "mlp")
        ways = {name: restarts.WAYS[name] for name in ("library", "own spare")}
        patch.setattr(restarts, "WAYS", ways)
        patch.setattr(restarts, "LENGTHS", {"often": restarts.LENGTHS["often"]})
        patch.setattr(
            running,
            "measure_restarts",
            ft.partial(restarts.measure_restarts, environments=4, steps=2),
        )
        return command.main([])


@pytest.mark.parametrize("devices, is_there", [(1, False), (2, True), (3, False)])
def test_a_step_is_spread_where_devices_can_take_equal_parts(
    monkeypatch, devices, is_there
):
    monkeypatch.setattr(running.jax, "device_count", lambda: devices)
    cell = Cell("mlp", 8, 2, ("rollout", "step"))
    found = running._measures(cell, is_quick=False)
    assert found == (*cell.measures, *([SPREAD] if is_there else []))
    assert running._measures(cell, is_quick=True) == cell.measures
    alone = cell._replace(measures=("rollout",))
    assert running._measures(alone, is_quick=False) == alone.measures


def test_every_measure_has_a_row(results):
    assert [row.measure for row in results.rows] == list(MEASURES)
    for row in results.rows:
        assert (row.library, row.network) == ("nnx_ppo_fn", "mlp")
        assert (row.environments, row.rollout_length) == (4, 2)
        # Two towers of 64, 256, 256 and 16 or 1, with biases.
        assert row.parameters == 86_544 + 82_689
        assert row.repeats == 3
        speed = row.steps_per_second
        assert 0 < speed.lower_quartile <= speed.median <= speed.upper_quartile
        middle = speed.median * row.seconds_per_rollout.median
        assert middle == pytest.approx(4 * 2, rel=1e-6)
        assert row.cost.memory.peak > row.cost.memory.temporary > 0
        assert times_floor(row, results.device) > 0
        alone = row.seconds_per_rollout.median / row.cost.products_seconds
        assert times_products(row) == pytest.approx(alone) and alone > 0


def test_the_floor_is_that_of_the_products(results):
    rows = {row.measure: row for row in results.rows}
    actor = 64 * 256 + 256 * 256 + 256 * 16
    critic = 64 * 256 + 256 * 256 + 256
    first_layers = 2 * 64 * 256
    forward, last_values = 2 * 8 * (actor + critic), 2 * 4 * critic
    # The value of what follows a rollout is in a branch, which does not count.
    assert rows["rollout"].cost.flops == forward
    # An evaluation asks for no values.
    assert rows["evaluation"].cost.flops == 2 * 8 * actor
    # Backward, each layer has two more products, but the first one only one.
    backward = 2 * forward - 2 * 8 * first_layers
    assert rows["replay"].cost.flops == forward + backward + last_values
    epochs = 4 * (forward + backward + last_values)
    # Advantages use the replay's values, so nobody needs those of the rollout's steps.
    collecting = forward - 2 * 8 * critic
    assert rows["step"].cost.flops == collecting + epochs


def test_what_is_stored_is_what_is_listed(results):
    (stored,) = results.stored
    # Observation, raw action, and log-likelihood, value, reward and bootstrap value;
    # and three flags.
    assert stored.storage.listed == 4 * (64 + 8 + 4) + 3
    assert stored.storage.stored <= 1.1 * stored.storage.listed


def test_a_training_compiles_once(results):
    assert results.compilations == (4, 1)


def test_agents_are_counted(results):
    trained = results.agents
    assert trained.seeds == 2
    # 29 iterations of 64 x 64 steps are the first to reach 115,000.
    assert trained.steps == 29 * 64 * 64
    for way in (trained.one_by_one, trained.side_by_side, trained.spread):
        assert way.median > 0
    can_be_kept = hasattr(os, "sched_setaffinity") and available_cores() > 1
    assert (trained.cores_ratio is not None) == can_be_kept


def test_the_file_holds_the_results(results, output):
    contents = json.loads((output / "benchmark.json").read_text())
    assert contents["schema"] == 1
    assert contents["device"]["platform"] == "cpu"
    assert contents["settings"]["networks"] == ["mlp"]
    first = contents["rows"][0]
    assert first["steps_per_second"]["median"] == results.rows[0].steps_per_second[1]
    assert first["times_floor"] == times_floor(results.rows[0], results.device)
    assert first["times_products"] == times_products(results.rows[0])
    assert read_json(output / "benchmark.json") == results


def test_a_file_from_before_something_was_measured_is_read(results, tmp_path):
    path = tmp_path / "benchmark.json"
    write_json(results, path)
    contents = json.loads(path.read_text())
    del contents["restarts"], contents["settings"]["restarts"]
    for row in contents["rows"]:
        del row["times_products"], row["cost"]["products_seconds"]
    path.write_text(json.dumps(contents))
    old = read_json(path)
    assert old == dataclasses.replace(
        results,
        rows=[
            row._replace(cost=row.cost._replace(products_seconds=None))
            for row in results.rows
        ],
        restarts=[],
        settings=dataclasses.replace(results.settings, restarts=False),
    )
    assert times_products(old.rows[0]) is None
    table = rows_table(old)
    assert table[0][-1] == "x products" and table[1][-1] == ""


def test_a_file_of_another_version_is_refused(results, tmp_path):
    path = tmp_path / "benchmark.json"
    write_json(results, path)
    path.write_text(path.read_text().replace('"schema": 1', '"schema": 0'))
    with pytest.raises(ValueError, match="run the benchmark again"):
        read_json(path)


def test_the_picture_is_written(results, output):
    assert (output / "benchmark.png").read_bytes().startswith(b"\x89PNG")


def test_without_matplotlib_there_is_no_picture_but_a_note(
    results, tmp_path, monkeypatch, capsys
):
    def refuse(*_):
        raise ImportError("no module named matplotlib")

    monkeypatch.setattr(command, "draw", refuse)
    monkeypatch.setattr(command, "run", lambda *_: results)
    command.main(["--output", str(tmp_path)])
    assert "no picture" in capsys.readouterr().err
    assert (tmp_path / "benchmark.json").exists()


def test_the_report_has_a_line_for_every_row(results):
    lines = report(results).splitlines()
    (header,) = (index for index, line in enumerate(lines) if "x floor" in line)
    table = lines[header + 2 : header + 2 + len(MEASURES)]
    assert [line.split()[3] for line in table] == list(MEASURES)
    assert any("compilations in 4 iterations: 1" in line for line in lines)
    (trained,) = (line for line in lines if "agents per minute" in line)
    are_kept = results.agents.cores_ratio is not None
    assert ("by a process on each core" in trained) == are_kept
    (header,) = (index for index, line in enumerate(lines) if "gives up" in line)
    compared = [line.split()[:3] for line in lines[header + 2 : header + 6]]
    assert compared == [
        [reset, "often", way]
        for reset in ("cheap", "costly")
        for way in ("library", "own")
    ]


def test_a_missing_peer_is_named_with_the_remedy(results):
    missing = dataclasses.replace(results, missing={"rejax": "pip install rejax"})
    assert "rejax is missing: pip install rejax" in report(missing)


@pytest.mark.parametrize("after", ["", "## After\n\nText.\n"])
def test_figures_are_pasted_into_their_section(results, after):
    page = f"# Page\n\nbefore\n\n{HEADING}\n\nold\n\n{RESTARTS_HEADING}\n\nold\n"
    page += "\n" + after if after else ""
    new = pasted(page, results)
    assert new.startswith(f"# Page\n\nbefore\n\n{HEADING}\n\n{results.device.name}")
    assert new.endswith(after or "\n")
    assert "old" not in new
    speeds, restarts = new.split(RESTARTS_HEADING)
    assert "| mlp | 4 | 2 | step |" in speeds
    assert "| costly | often | own spare |" in restarts
    assert pasted(new, results) == new


def test_a_page_without_the_section_is_left_alone(results):
    with pytest.raises(ValueError, match="## Figures"):
        pasted("# Another page\n", results)
