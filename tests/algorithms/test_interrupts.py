import dataclasses
import os
import signal

import jax.random as jr
import pytest

from helpers import mlp_network, small_config
from nnx_ppo_fn import train_ppo, TrainingInterrupted
from nnx_ppo_fn.algorithms.interrupts import DeferredInterrupt
from nnx_ppo_fn.envs import make


def press():
    os.kill(os.getpid(), signal.SIGINT)


def test_the_first_press_waits_and_the_second_does_not():
    with DeferredInterrupt() as interrupt:
        press()
        assert interrupt.requested
        with pytest.raises(KeyboardInterrupt):
            interrupt.raise_if_requested()
        with pytest.raises(KeyboardInterrupt):
            press()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_handler_of_someone_elses_stays():
    pressed = []
    own = signal.signal(signal.SIGINT, lambda *_: pressed.append(True))
    try:
        with DeferredInterrupt() as interrupt:
            press()
        assert pressed == [True] and not interrupt.requested
    finally:
        signal.signal(signal.SIGINT, own)


def test_training_stops_at_the_end_of_a_compiled_call_with_everything_logged():
    env = make("probe:counting")
    network = mlp_network(jr.key(0), env.observation_size)
    config = dataclasses.replace(small_config(), iterations_per_call=2)
    logged = []

    def log(metrics, step):
        logged.append(step)
        if step == 40:
            press()

    with pytest.raises(TrainingInterrupted) as info:
        train_ppo(env, network, config, log_fn=log)
    assert logged == [40, 80]
    assert info.value.result.total_steps == 80
    assert int(info.value.result.training_state.env_steps) == 80
