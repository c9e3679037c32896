import dataclasses
import signal

import jax
import jax.random as jr
import numpy as np
import pytest

from drawn import Drawn
from helpers import assert_close, small_config, small_network, tree_equal
from nnx_ppo_fn import (
    CompositionError,
    EpisodeWrapper,
    EvalConfig,
    InvalidEnvironmentError,
    Status,
    train_ppo,
    TrainingFault,
    TrainingInterrupted,
    TrainingStopped,
)
from nnx_ppo_fn.algorithms.callbacks import Callback
from nnx_ppo_fn.algorithms.config import VideoConfig
from nnx_ppo_fn.algorithms.loop import run_iterations
from nnx_ppo_fn.envs import make


ENV = make("probe:counting")
NETWORK = small_network(jr.key(7), ENV.observation_size)


def train(config, **options):
    return train_ppo(ENV, NETWORK, config, **options)


def test_every_iteration_is_logged_in_order_with_its_own_numbers():
    logged = []
    result = train(
        small_config(eval_enabled=True), log_fn=lambda m, s: logged.append((s, m))
    )
    assert [step for step, _ in logged] == [0, 40, 80, 120, 160, 200]
    assert result.total_steps == 200 and result.total_iterations == 5
    evaluated = [step for step, m in logged if "eval/lifespan/mean" in m]
    assert evaluated == [0, 80, 160, 200]
    assert [entry["step"] for entry in result.eval_history] == evaluated
    losses = [m["losses/critic/mean"] for _, m in logged[1:]]
    assert len(set(losses)) == 5
    assert all(m["replay/log_ratio_max"] < 1e-5 for _, m in logged[1:])
    assert all(m["replay/log_ratio_last"] > 1e-5 for _, m in logged[1:])
    assert result.final_metrics == logged[-1][1]


def test_evaluating_changes_nothing_of_the_training():
    quiet = train(small_config())
    evaluated = train(small_config(eval_enabled=True))
    assert tree_equal(quiet.training_state, evaluated.training_state)


def test_chunks_of_any_length_are_the_same_training():
    whole = train(small_config())
    cut = train(dataclasses.replace(small_config(), iterations_per_call=2))
    assert tree_equal(whole.training_state, cut.training_state)


def test_a_run_that_goes_on_is_the_run_that_never_stopped():
    whole = train(small_config())
    half = train(small_config(), total_steps=120)
    kept = jax.tree.map(lambda leaf: leaf, half.training_state)
    resumed = train_ppo(ENV, half.network, small_config(), initial_state=kept)
    assert tree_equal(whole.training_state, resumed.training_state)
    assert resumed.total_steps == 200 and resumed.total_iterations == 2
    assert not kept.status.is_deleted()


def test_the_key_wins_over_the_seed_and_the_seed_over_the_configuration():
    by_seed = train(small_config(seed=3)).training_state
    assert tree_equal(by_seed, train(small_config(), seed=3).training_state)
    by_key = train(small_config(), key=jr.key(3), seed=8).training_state
    assert tree_equal(by_seed, by_key)
    assert not tree_equal(by_seed, train(small_config(seed=4)).training_state)


def test_another_network_than_the_states_is_refused():
    state = train(small_config(), total_steps=40).training_state
    other = small_network(jr.key(7), ENV.observation_size, hidden=4)
    with pytest.raises(ValueError, match="network of another structure"):
        train_ppo(ENV, other, small_config(), initial_state=state)


def test_checkpoints_come_at_their_steps_and_at_the_end():
    steps = []
    config = dataclasses.replace(small_config(), checkpoint_every_steps=90)
    train(
        config,
        checkpoint_fn=lambda state, step: steps.append((step, int(state.env_steps))),
    )
    assert steps == [(120, 120), (200, 200)]


def test_a_fault_keeps_the_last_good_state_and_explains_itself():
    config = small_config(learning_rate=float("inf"))
    with pytest.raises(
        TrainingFault, match="an update made a parameter.*learning rate"
    ) as info:
        train(config)
    state = info.value.result.training_state
    assert state.status == Status.UPDATE_NOT_FINITE
    assert_close(
        state.parameters, train(small_config(), total_steps=0).training_state.parameters
    )


def test_training_goes_on_from_what_a_fault_left():
    with pytest.raises(TrainingFault) as info:
        train(small_config(learning_rate=float("inf")))
    state = info.value.result.training_state
    resumed = train_ppo(ENV, state.network, small_config(), initial_state=state)
    assert tree_equal(resumed.training_state, train(small_config()).training_state)


@pytest.mark.parametrize("switch", ["gradient_clipping", "weight_decay"])
def test_training_goes_on_with_what_was_switched_off_before(switch):
    state = train(small_config(), total_steps=40).training_state
    result = train_ppo(
        ENV, NETWORK, small_config(**{switch: 0.1}), total_steps=80, initial_state=state
    )
    assert result.total_steps == 80


def test_another_environment_than_the_states_is_refused():
    state = train(small_config(), total_steps=40).training_state
    with pytest.raises(InvalidEnvironmentError, match="made with another environment"):
        train_ppo(EpisodeWrapper(ENV, 3), NETWORK, small_config(), initial_state=state)


class Story(Callback):
    """Writes down what happens to a training."""

    def __init__(self):
        self.events = []

    def on_iteration(self, metrics, step):
        self.events.append(("iteration", step, metrics))

    def on_eval(self, metrics, step):
        self.events.append(("eval", step, metrics))

    def on_end(self, result):
        self.events.append(("end", result.total_steps, result))


def test_callbacks_are_told_what_log_fn_is_told_and_evaluations_by_themselves():
    story, logged = Story(), []
    result = train(
        small_config(eval_enabled=True),
        log_fn=lambda metrics, step: logged.append(("iteration", step, metrics)),
        callbacks=[story],
    )
    assert [event for event in story.events if event[0] == "iteration"] == logged
    evaluated = [event for event in story.events if event[0] == "eval"]
    assert [
        {"step": step, **told} for _, step, told in evaluated
    ] == result.eval_history
    assert [event[:2] for event in story.events[:5]] == [
        ("iteration", 0),
        ("eval", 0),
        ("iteration", 40),
        ("iteration", 80),
        ("eval", 80),
    ]
    assert story.events[-1] == ("end", 200, result)


@pytest.mark.parametrize("name", ["log_fn", "checkpoint_fn", "callbacks"])
def test_a_callback_that_fails_does_not_take_the_training_with_it(name):
    def fail(news, step):
        raise OSError("disk full")

    failing, story = Callback(), Story()
    failing.on_iteration = fail
    options = {"callbacks": [story, failing]} if name == "callbacks" else {name: fail}
    where = "Callback.on_iteration" if name == "callbacks" else name
    with pytest.raises(TrainingStopped, match=f"{where} failed.*disk full") as info:
        train(small_config(), **{"callbacks": [story], **options})
    assert info.value.result.total_steps > 0
    assert isinstance(info.value.__cause__, OSError)
    assert story.events[-1] == ("end", 200, info.value.result)


def test_the_end_is_told_before_a_fault_leaves():
    story = Story()
    with pytest.raises(TrainingFault) as info:
        train(small_config(learning_rate=float("inf")), callbacks=[story])
    assert story.events == [("end", 0, info.value.result)]


def test_what_fails_at_the_end_loses_nothing():
    failing, story = Callback(), Story()
    failing.on_end = lambda result: 1 / 0
    with pytest.raises(TrainingStopped, match="on_end failed.*division") as info:
        train(small_config(), callbacks=[failing, story])
    assert info.value.result.total_steps == 200
    assert story.events[-1] == ("end", 200, info.value.result)


def test_ctrl_c_while_the_end_is_told_keeps_the_result():
    story, pressing = Story(), Callback()
    pressing.on_end = lambda result: signal.raise_signal(signal.SIGINT)
    with pytest.raises(TrainingInterrupted) as info:
        train(small_config(), total_steps=0, callbacks=[pressing, story])
    assert story.events == [("end", 0, info.value.result)]


def test_an_interrupt_keeps_what_there_is():
    def interrupt(metrics, step):
        if step == 80:
            raise KeyboardInterrupt

    story = Story()
    config = dataclasses.replace(small_config(), iterations_per_call=1)
    with pytest.raises(TrainingInterrupted) as info:
        train(config, log_fn=interrupt, callbacks=[story])
    result = info.value.result
    assert story.events[-1] == ("end", 80, result)
    assert result.total_steps == 80
    assert int(result.training_state.env_steps) == 80
    assert isinstance(info.value, KeyboardInterrupt)


def test_a_budget_of_nothing_evaluates_and_returns():
    result = train(small_config(eval_enabled=True), total_steps=0)
    assert result.total_iterations == 0
    assert [entry["step"] for entry in result.eval_history] == [0]


def filmed(*, enabled=True, **settings):
    """A small training that records every 80 steps."""
    video = VideoConfig(
        enabled=enabled, every_steps=80, episode_length=10, height=4, width=6
    )
    return dataclasses.replace(small_config(**settings), video=video)


def test_videos_change_nothing_of_the_training():
    videos = []
    with pytest.warns(UserWarning, match="nothing is recorded without a video_fn"):
        quiet = train_ppo(Drawn(), NETWORK, filmed())
    shown = train_ppo(Drawn(), NETWORK, filmed(), video_fn=videos.append)
    assert tree_equal(quiet.training_state, shown.training_state)
    assert [video.step for video in videos] == [0, 80, 160, 200]
    for video in videos:
        assert (video.episode_length, video.episode_reward) == (5, 5.0)
        assert video.frames.shape == (6, 4, 6, 3)
        np.testing.assert_array_equal(video.frames[:, 0, 0, 0], np.arange(6))


def test_an_environment_that_cannot_draw_itself_is_refused_before_training():
    story = Story()
    with pytest.raises(InvalidEnvironmentError, match="has no method render"):
        train(filmed(), video_fn=print, callbacks=[story])
    assert story.events == []


def test_a_video_function_that_nothing_is_recorded_for_is_noticed():
    options = {"video_fn": print, "total_steps": 0}
    with pytest.warns(UserWarning, match="video_fn is given, but nothing is recorded"):
        train_ppo(Drawn(), NETWORK, filmed(enabled=False), **options)


@pytest.mark.parametrize("where", ["recording a video", "video_fn"])
def test_a_video_that_fails_does_not_take_the_training_with_it(where):
    class Broken(Drawn):
        def render(self, trajectory, **size):
            return 1 / 0

    env = Broken() if where == "recording a video" else Drawn()
    with pytest.raises(TrainingStopped, match=f"{where} failed.*division") as info:
        train_ppo(env, NETWORK, filmed(), video_fn=lambda data: 1 / 0, total_steps=0)
    assert info.value.result.total_steps == 0


def test_an_environment_to_evaluate_in_is_checked_before_training():
    with pytest.raises(CompositionError):
        train(small_config(eval_enabled=True), eval_env=make("cartpole"))


def test_the_program_compiles_once_for_all_chunks_and_coefficients(monkeypatch):
    traces = 0

    def counted(*arguments):
        nonlocal traces
        traces += 1
        return run_iterations(*arguments)

    monkeypatch.setattr("nnx_ppo_fn.algorithms.loop.run_iterations", counted)
    config = dataclasses.replace(
        small_config(),
        iterations_per_call=2,
        eval=EvalConfig(every_steps=120, n_envs=2, max_episode_length=3),
    )
    train(config)
    changed = dataclasses.replace(config.ppo, learning_rate=1e-4, clip_range=0.1)
    train(dataclasses.replace(config, ppo=changed), seed=9)
    assert traces == 1
