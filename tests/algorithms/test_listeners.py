import pytest

from nnx_ppo_fn.algorithms.callbacks import Callback
from nnx_ppo_fn.algorithms.listeners import as_stop, ListenerFailed, Listeners
from nnx_ppo_fn.algorithms.stopping import TrainingInterrupted, TrainingStopped
from nnx_ppo_fn.algorithms.types import TrainResult


class Heard(Callback):
    """Writes down what it is told, and does not leave it as it was."""

    def __init__(self, name, story):
        self.name, self.story = name, story

    def on_iteration(self, metrics, step):
        self.story.append((self.name, "iteration", dict(metrics), step))
        metrics.clear()

    def on_eval(self, metrics, step):
        self.story.append((self.name, "eval", dict(metrics), step))
        metrics.clear()

    def on_end(self, result):
        self.story.append((self.name, "end", result))


class Failing(Callback):
    """Fails wherever `error` is set for."""

    def __init__(self, **errors):
        self.errors = errors

    def on_iteration(self, metrics, step):
        if "on_iteration" in self.errors:
            raise self.errors["on_iteration"]

    def on_eval(self, metrics, step):
        if "on_eval" in self.errors:
            raise self.errors["on_eval"]

    def on_end(self, result):
        if "on_end" in self.errors:
            raise self.errors["on_end"]


@pytest.fixture
def result():
    empty = object.__new__(TrainResult)
    object.__setattr__(empty, "total_steps", 64)
    return empty


def test_everyone_hears_the_same_in_order_and_keeps_it_to_himself(result):
    story = []

    def log(metrics, step):
        story.append(("log_fn", "iteration", dict(metrics), step))
        metrics.clear()

    one, other = Heard("one", story), Heard("other", story)
    listeners = Listeners(log_fn=log, callbacks=[one, other])
    metrics = {"loss": 1.0}
    listeners.iteration(metrics, 32)
    listeners.evaluation(metrics, 32)
    assert listeners.end(result, None) is None
    assert story == [
        ("log_fn", "iteration", {"loss": 1.0}, 32),
        ("one", "iteration", {"loss": 1.0}, 32),
        ("other", "iteration", {"loss": 1.0}, 32),
        ("one", "eval", {"loss": 1.0}, 32),
        ("other", "eval", {"loss": 1.0}, 32),
        ("one", "end", result),
        ("other", "end", result),
    ]
    assert metrics == {"loss": 1.0}


@pytest.mark.parametrize(
    "method, tell",
    [("on_iteration", Listeners.iteration), ("on_eval", Listeners.evaluation)],
)
def test_a_callback_that_fails_is_named(method, tell, result):
    error = OSError("disk full")
    with pytest.raises(ListenerFailed) as info:
        tell(Listeners(callbacks=[Failing(**{method: error})]), {}, 32)
    stop = as_stop(info.value, result, 32)
    assert str(stop).startswith(
        f"Failing.{method} failed after 32 environment steps: OSError: disk full."
    )
    assert stop.result is result and stop.__cause__ is error


def test_a_callback_that_fails_at_the_end_stops_no_other(result):
    story, error = [], OSError("disk full")
    callbacks = [Failing(on_end=error), Heard("last", story)]
    stop = Listeners(callbacks=callbacks).end(result, None)
    assert story == [("last", "end", result)]
    assert isinstance(stop, TrainingStopped) and stop.result is result
    assert "Failing.on_end failed" in str(stop) and stop.__cause__ is error


def test_what_stopped_the_training_is_told_before_what_failed_at_the_end(result):
    first = TrainingStopped("log_fn failed", result)
    callbacks = [Failing(on_end=OSError("disk full")), Failing(on_end=ValueError("no"))]
    stop = Listeners(callbacks=callbacks).end(result, first)
    assert stop is first
    assert [note.split(":")[1].strip() for note in stop.__notes__] == [
        "OSError",
        "ValueError",
    ]


def test_an_interrupt_at_the_end_keeps_the_result(result):
    story = []
    callbacks = [Failing(on_end=KeyboardInterrupt()), Heard("last", story)]
    stop = Listeners(callbacks=callbacks).end(result, None)
    assert isinstance(stop, TrainingInterrupted) and stop.result is result
    assert len(story) == 1


def test_nothing_is_recorded_for_nobody():
    Listeners().video(lambda: pytest.fail("recorded"))


def test_what_is_no_callback_is_told_how_to_become_one():
    def expect(callbacks, message):
        with pytest.raises(TypeError, match=message):
            Listeners.__init__.__wrapped__(Listeners(), callbacks=callbacks)

    expect(Callback(), r"callbacks must be a list; write \[Callback\(\.\.\.\)\]")
    expect(None, "callbacks must be a list .*, got NoneType")
    expect([Callback], r"got the class Callback; write Callback\(\.\.\.\)")
    expect([print], "a function of .metrics, step. is a log_fn")
