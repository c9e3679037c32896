"""The host's side of training: compiled chunks, evaluations, callbacks, errors."""

import time
from collections.abc import Callable
from typing import Any, final, TypeAlias

import jax
import jax.numpy as jnp
import jax.tree_util as jtu
from jaxtyping import Array, Int, Key

from .._custom_types import PyTree
from .._keys import derive
from ..envs import RLEnv
from .compiled import compiled
from .config import LoggingLevel, TrainConfig
from .evaluation import play
from .faults import explain
from .interrupts import DeferredInterrupt
from .step import ppo_step
from .tolerance import replay_tolerance
from .types import Metrics, Status, TrainingState, TrainResult


LogFunction: TypeAlias = Callable[[Metrics, int], None]
CheckpointFunction: TypeAlias = Callable[[TrainingState, int], None]


class TrainingStopped(RuntimeError):
    """Training ended before its budget was used. `result` holds what there is.

    Raised as it is where `log_fn` or `checkpoint_fn` fails; the failure is its cause.
    """

    def __init__(self, message: str, result: TrainResult):
        super().__init__(message)
        self.result = result


@final
class TrainingFault(TrainingStopped):
    """Training stopped by itself. `result` holds the last good state."""


@final
class TrainingInterrupted(KeyboardInterrupt):
    """Ctrl-C during training. `result` holds what there is."""

    def __init__(self, result: TrainResult):
        super().__init__("training was interrupted; .result holds what there is")
        self.result = result


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
    first `done` are filled. A fault ends the loop early.
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
        return (done < count) & (state.status == Status.HEALTHY)

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
    """Runs a training state to its step budget and tells the callbacks about it."""

    def __init__(
        self,
        env: RLEnv,
        eval_env: RLEnv,
        training_state: TrainingState,
        config: TrainConfig,
        *,
        evaluation_key: Key[Array, ""],
        log_fn: LogFunction | None,
        checkpoint_fn: CheckpointFunction | None,
    ):
        """Arguments are those of `train_ppo`, all of them decided."""
        self.env = env
        self.eval_env = eval_env
        self.state = training_state
        self.config = config
        self.evaluation_key = evaluation_key
        self.log_fn = log_fn
        self.checkpoint_fn = checkpoint_fn
        self.steps = int(training_state.env_steps)
        self.iterations = 0
        self.metrics: Metrics = {}
        self.eval_history: list[Metrics] = []
        self.compile_seconds = 0.0
        self.train_seconds = 0.0
        self._chunk = compiled(run_iterations, static=(0,), donate=(1,))

    def run(self) -> TrainResult:
        """Trains until the budget is used, a fault, or Ctrl-C.

        The first Ctrl-C is heeded between compiled calls, a second one at once.
        """
        with DeferredInterrupt() as interrupt:
            try:
                self._compile()
                if self.config.eval.enabled:
                    self._evaluate()
                    self._log()
                interrupt.raise_if_requested()
                while self.steps < self.config.ppo.total_steps:
                    self._run_chunk(self._iterations_to_next_event())
                    interrupt.raise_if_requested()
            except KeyboardInterrupt:
                raise TrainingInterrupted(self.result()) from None
        return self.result()

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
            if last and self._due(self.config.eval.every_steps, before):
                self._evaluate()
            self._log()
        if self.checkpoint_fn is not None and self._due(
            self.config.checkpoint_every_steps, before
        ):
            self._call("checkpoint_fn", self.checkpoint_fn, self.state)

    def _advance(self, count: int) -> tuple[dict[str, Any], int]:
        """Runs `count` iterations, and waits for them."""
        state, rows, done = self._chunk(
            self.env, self.state, self.config, jnp.int32(count)
        )
        self.state = state
        rows, done = jax.device_get((rows, done))
        return rows, int(done)

    def _iterations_to_next_event(self) -> int:
        """How far the next chunk may go before the host has something to do."""
        per_iteration = self.config.ppo.steps_per_iteration
        budget = self.config.ppo.total_steps
        targets = [budget]
        if self.config.eval.enabled:
            targets.append(_next_multiple(self.steps, self.config.eval.every_steps))
        if self.checkpoint_fn is not None:
            every = self.config.checkpoint_every_steps
            targets.append(_next_multiple(self.steps, every))
        missing = min(target - self.steps for target in targets)
        return min(-(-missing // per_iteration), self.config.iterations_per_call)

    def _due(self, every_steps: int, before: int) -> bool:
        """Whether a multiple of `every_steps` was passed, or the end was reached."""
        passed = self.steps // every_steps > before // every_steps
        return passed or self.steps >= self.config.ppo.total_steps

    def _evaluate(self) -> None:
        """Evaluates on keys of its own, so that training does not notice."""
        settings = self.config.eval
        if not settings.enabled:
            return
        metrics = play(
            self.eval_env,
            self.state.network,
            key=derive(self.evaluation_key, f"after {self.steps} steps"),
            n_envs=settings.n_envs,
            max_episode_length=settings.max_episode_length,
            deterministic=settings.deterministic,
        )
        numbers: Metrics = {name: float(value) for name, value in metrics.items()}
        self.eval_history.append({"step": self.steps, **numbers})
        self.metrics = {**self.metrics, **numbers}

    def _log(self) -> None:
        if self.log_fn is not None:
            self._call("log_fn", self.log_fn, dict(self.metrics))

    def _call(self, name: str, callback: Callable[[Any, int], None], news: Any) -> None:
        """A callback that fails must not take the training with it."""
        try:
            callback(news, self.steps)
        except Exception as error:
            raise TrainingStopped(
                f"{name} failed after {self.steps} environment steps: "
                f"{type(error).__name__}: {error}. What was trained is in this error's "
                ".result",
                self.result(),
            ) from error


def _next_multiple(steps: int, every: int) -> int:
    return (steps // every + 1) * every
