"""The host's side of training: compiled chunks, evaluations, callbacks, errors."""

import time
from typing import Any, final

import jax
import jax.numpy as jnp
import jax.tree_util as jtu
from jaxtyping import Array, Int

from .._custom_types import PyTree
from .._keys import derive
from .._tree import anywhere
from ..envs import RLEnv
from .compiled import compiled, step_compiler_options
from .config import LoggingLevel, TrainConfig
from .evaluation import evaluate
from .faults import explain
from .interrupts import DeferredInterrupt
from .listeners import as_stop, ListenerFailed, Listeners
from .run_keys import RunKeys
from .schedule import is_due, iterations_to_next
from .step import ppo_step
from .stopping import TrainingFault, TrainingInterrupted, TrainingStopped
from .tolerance import replay_tolerance
from .trajectory import record_episode
from .types import Metrics, Status, TrainingState, TrainResult, VideoData


def run_iterations(
    env: RLEnv,
    training_state: TrainingState,
    config: TrainConfig,
    count: Int[Array, ""],
) -> tuple[TrainingState, dict[str, Array], Int[Array, ""]]:
    """Up to `config.iterations_per_call` iterations, without returning to the host.

    **Arguments:**

    - `env`, `training_state`, `config`: as for `ppo_step`.
    - `count`: how many iterations; traced, so that a remainder compiles nothing.

    **Returns:**

    `(training_state, metrics, done)`: metrics with one row per iteration, of which the
    first `done` are filled. A fault ends the loop early, unless there are runs beside
    this one under `jax.vmap`: then it stands still.
    """
    # Under `jit`, so that asking for the shapes traces the step once and for all.
    step = jax.jit(lambda state: ppo_step(env, state, config))
    _, shapes = jax.eval_shape(step, training_state)
    empty = jtu.tree_map(
        lambda leaf: jnp.zeros((config.iterations_per_call, *leaf.shape), leaf.dtype),
        shapes,
    )

    def goes_on(now: tuple[TrainingState, PyTree, Array]) -> Array:
        state, _, done = now
        return (done < count) & anywhere(state.status == Status.HEALTHY)

    def iterate(
        now: tuple[TrainingState, PyTree, Array],
    ) -> tuple[TrainingState, PyTree, Array]:
        state, rows, done = now
        state, metrics = step(state)
        rows = jtu.tree_map(lambda all_, row: all_.at[done].set(row), rows, metrics)
        return state, rows, done + 1

    return jax.lax.while_loop(goes_on, iterate, (training_state, empty, jnp.int32(0)))


@final
class Trainer:
    """Runs a training state to its step budget and tells the listeners about it."""

    def __init__(
        self,
        env: RLEnv,
        eval_env: RLEnv,
        training_state: TrainingState,
        config: TrainConfig,
        *,
        keys: RunKeys,
        listeners: Listeners,
    ):
        """Prepares a training; all settings are decided.

        **Arguments:**

        - `env`, `eval_env`, `config`: those of `train_ppo`.
        - `training_state`: where to begin; its memory is used up.
        - `keys`: of the evaluations and the videos.
        - `listeners`: who is told about it.
        """
        self.env = env
        self.eval_env = eval_env
        self.state = training_state
        self.config = config
        self.keys = keys
        self.listeners = listeners
        self.steps = int(training_state.env_steps)
        self.iterations = 0
        self.metrics: Metrics = {}
        self.eval_history: list[Metrics] = []
        self.compile_seconds = 0.0
        self.train_seconds = 0.0
        self._interrupt = DeferredInterrupt()
        self._chunk = compiled(
            run_iterations, static=(0,), donate=(1,), options=step_compiler_options()
        )

    def run(self) -> TrainResult:
        """Trains until the budget is used, a fault, a failing listener, or Ctrl-C.

        The first Ctrl-C is heeded between compiled calls, a second one at once.
        """
        stop: TrainingStopped | TrainingInterrupted | None = None
        with self._interrupt:
            try:
                self._train()
            except KeyboardInterrupt:
                stop = TrainingInterrupted(self.result())
            except ListenerFailed as failed:
                stop = as_stop(failed, self.result(), self.steps)
            except TrainingFault as fault:
                stop = fault
            result = self.result() if stop is None else stop.result
            stop = self.listeners.end(result, stop)
            if stop is None and self._interrupt.requested:
                stop = TrainingInterrupted(result)
        if stop is not None:
            raise stop
        return result

    def result(self) -> TrainResult:
        """What there is now: an interrupt may come before all of a chunk is logged."""
        steps = int(self.state.env_steps)
        unlogged = (steps - self.steps) // self.config.ppo.steps_per_iteration
        return TrainResult(
            training_state=self.state,
            network=self.state.network,
            final_metrics=self.metrics,
            eval_history=self.eval_history,
            total_steps=steps,
            total_iterations=self.iterations + unlogged,
            compile_seconds=self.compile_seconds,
            train_seconds=self.train_seconds,
        )

    def _train(self) -> None:
        self._compile()
        evaluation = self._evaluate()
        if evaluation:
            self._tell(evaluation)
        self._record_video()
        self._interrupt.raise_if_requested()
        while self.steps < self.config.ppo.total_steps:
            intervals = self._intervals()
            self._run_chunk(iterations_to_next(self.steps, intervals, self.config))
            self._interrupt.raise_if_requested()

    def _compile(self) -> None:
        """Compiles in a call of no iterations, to time the first chunk rightly."""
        if self.steps >= self.config.ppo.total_steps:
            return
        start = time.perf_counter()
        self._advance(0)
        self.compile_seconds = time.perf_counter() - start

    def _run_chunk(self, count: int) -> None:
        start = time.perf_counter()
        before = self.steps
        rows, done = self._advance(count)
        elapsed = time.perf_counter() - start
        self.train_seconds += elapsed
        per_iteration = self.config.ppo.steps_per_iteration
        fault = int(self.state.status) != Status.HEALTHY
        for index in range(done):
            last = index == done - 1
            self.metrics = {name: float(row[index]) for name, row in rows.items()}
            if last and fault:
                message = explain(
                    self.state,
                    self.metrics["replay/log_ratio_max"],
                    replay_tolerance(self.config.ppo, self.state.parameters),
                )
                raise TrainingFault(message, self.result())
            self.iterations += 1
            self.steps += per_iteration
            self.metrics["total_steps"] = self.steps
            if LoggingLevel.THROUGHPUT in self.config.ppo.logging_level:
                self.metrics["throughput/train_sps"] = done * per_iteration / elapsed
            due = last and self._due(self.config.eval.every_steps, before)
            self._tell(self._evaluate() if due else {})
        if self._due(self.config.video.every_steps, before):
            self._record_video()
        if self._due(self.config.checkpoint_every_steps, before):
            self.listeners.checkpoint(self.state, self.steps)

    def _advance(self, count: int) -> tuple[dict[str, Any], int]:
        """Runs `count` iterations, and waits for them."""
        state, rows, done = self._chunk(
            self.env, self.state, self.config, jnp.int32(count)
        )
        self.state = state
        rows, done = jax.device_get((rows, done))
        return rows, int(done)

    def _intervals(self) -> list[int]:
        """Steps between what the host has to do, for each kind that there is."""
        config, listeners = self.config, self.listeners
        intervals = (
            (config.eval.every_steps, config.eval.enabled),
            (config.video.every_steps, config.video.enabled and listeners.video_fn),
            (config.checkpoint_every_steps, listeners.checkpoint_fn),
        )
        return [every_steps for every_steps, in_use in intervals if in_use]

    def _due(self, every_steps: int, before: int) -> bool:
        return is_due(every_steps, before=before, steps=self.steps, config=self.config)

    def _evaluate(self) -> Metrics:
        """Evaluates, unless that is disabled.

        On keys of its own, so that training does not notice.
        """
        settings = self.config.eval
        if not settings.enabled:
            return {}
        metrics = evaluate(
            self.eval_env,
            self.state.network,
            key=derive(self.keys.evaluation, f"after {self.steps} steps"),
            n_envs=settings.n_envs,
            max_episode_length=settings.max_episode_length,
            deterministic=settings.deterministic,
        )
        numbers: Metrics = {name: float(value) for name, value in metrics.items()}
        self.eval_history.append({"step": self.steps, **numbers})
        self.metrics = {**self.metrics, **numbers}
        return numbers

    def _tell(self, evaluation: Metrics) -> None:
        """Tells of what has just been measured.

        Who asks for an end in the middle of a call gets it after the call's last
        metrics, since the state is that far already.
        """
        try:
            self.listeners.iteration(self.metrics, self.steps)
            if evaluation:
                self.listeners.evaluation(evaluation, self.steps)
        except KeyboardInterrupt:
            self._interrupt.requested = True

    def _record_video(self) -> None:
        if self.config.video.enabled:
            self.listeners.video(self._video)

    def _video(self) -> VideoData:
        """Plays and draws an episode, on keys of its own like an evaluation."""
        settings = self.config.video
        episode = record_episode(
            self.eval_env,
            self.state.network,
            key=derive(self.keys.video, f"after {self.steps} steps"),
            max_episode_length=settings.episode_length,
        )
        return VideoData(
            frames=episode.frames(
                self.eval_env, height=settings.height, width=settings.width
            ),
            step=self.steps,
            episode_reward=episode.episode_reward,
            episode_length=episode.length,
        )
