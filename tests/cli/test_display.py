"""What the screen shows."""

import math

from nnx_ppo_fn.cli.display import Live
from nnx_ppo_fn.cli.progress import duration, number, Progress


def test_the_live_display_shows_the_latest_numbers(capsys, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "120")
    display = Live(Progress(1024, 1e-4))
    display.start()
    display.say("[not markup]")
    display.update({"eval/episode_reward/mean": 12.5}, 0)
    display.update({"episode/return/mean": math.nan, "losses/critic/mean": 2.0}, 512)
    display.stop()
    text = capsys.readouterr().out
    for part in ("[not markup]", "training", "512 of 1,024 steps", "12.5", "2.00"):
        assert part in text
    assert "nan" not in text


def test_the_replay_check_says_where_it_stops():
    progress = Progress(1024, 1e-4)
    assert progress.numbers == {}
    progress.update({"replay/log_ratio_max": 0.0}, 512)
    assert progress.numbers == {"replay check": "0.0 (stops above 0.0001)"}
    progress = Progress(1024, 4 * 2.0**-10)
    progress.update({"replay/log_ratio_max": 2.5e-4}, 512)
    assert progress.numbers == {"replay check": "2.5e-04 (stops above 0.0039)"}


def test_progress_estimates_the_time_left(monkeypatch):
    times = iter([100.0, 102.0, 110.0])
    monkeypatch.setattr("time.perf_counter", lambda: next(times))
    progress = Progress(10_000, 1e-4)
    progress.update({}, 0)
    assert progress.pace == ""
    progress.update({}, 4000)
    # 4000 steps in 2 s leave 6000 steps, 3 s.
    assert progress.pace == "2,000 steps/s, 3 s left"
    progress.update({}, 10_000)
    assert progress.pace == "1,000 steps/s, 0 s left"


def test_numbers_and_durations_are_short():
    values = [0.0, 487.25, 9.876, -0.0123, 1234567.0, 1e-7]
    shown = ["0.0", "487.2", "9.88", "-0.012", "1.2e+06", "1.0e-07"]
    assert [number(value) for value in values] == shown
    assert [duration(s) for s in (8.0, 200.0, 7500.0)] == [
        "8 s",
        "3 min 20 s",
        "2 h 05 min",
    ]
