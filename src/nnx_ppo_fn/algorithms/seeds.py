"""Trains several seeds at once, side by side in one compiled program."""

import time
from collections.abc import Callable, Sequence
from typing import Any, final, TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.tree_util as jtu
from jaxtyping import Array, Int, Key

from .._custom_types import PyTree
from .._keys import derive
from ..envs import RLEnv
from ..networks.types import AnyModule
from .compiled import compiled
from .config import expect_config, LoggingLevel, TrainConfig
from .evaluation import evaluate
from .faults import explain
from .interrupts import DeferredInterrupt
from .schedule import is_due, iterations_to_next
from .step import new_training_state, ppo_step
from .tolerance import replay_tolerance
from .types import Metrics, own, StaticHalf, Status, TrainingState, TrainResult


SeedsLogFunction: TypeAlias = Callable[[list[Metrics], int], None]


@final
class SeedsInterrupted(KeyboardInterrupt):
    """Ctrl-C while several seeds train. `results` holds what there is of each."""

    def __init__(self, results: list[TrainResult]):
        super().__init__("training was interrupted; .results holds what there is")
        self.results = results


def train_seeds(
    env: RLEnv,
    make_network: Callable[[Key[Array, ""]], AnyModule],
    config: TrainConfig | None = None,
    *,
    seeds: Sequence[int],
    eval_env: RLEnv | None = None,
    log_fn: SeedsLogFunction | None = None,
) -> list[TrainResult]:
    """Trains one network per seed, all of them in one program.

    A seed's network and numbers are those that `train_ppo` gives for that seed alone,
    up to rounding; `make_network` is called with the key
    `derive(jax.random.key(seed), "initial weights")`.

    **Arguments:**

    - `env`: the environment to train in.
    - `make_network`: builds a network from a key; every time of the same structure.
    - `config`: the settings; its own seed is not used.
    - `seeds`: one training each, all of them different.
    - `eval_env`: to evaluate in; `env` by default.
    - `log_fn`: called like `train_ppo`'s, with a list of one `metrics` per seed, empty
      for a seed that has stopped.

    **Returns:**

    One `TrainResult` per seed. A seed in which numbers go wrong stops by itself and
    keeps its last good state, and `fault` says why; the others go on.

    **Raises:**

    - what `new_training_state` raises, and `ValueError` for seeds that are not all
      different, before anything compiles.
    - `SeedsInterrupted`, a `KeyboardInterrupt`, on Ctrl-C.
    """
    config = TrainConfig() if config is None else config
    expect_config(config)
    if not seeds or len(set(seeds)) < len(seeds):
        raise ValueError(f"expected seeds, all different, got {list(seeds)}")
    roots = [jax.random.key(seed) for seed in seeds]
    networks = [own(make_network(derive(key, "initial weights"))) for key in roots]
    if any(StaticHalf.of(one) != StaticHalf.of(networks[0]) for one in networks):
        raise ValueError("make_network must build the same structure for every key")
    return _SeedsTrainer(
        env, env if eval_env is None else eval_env, networks, config, roots, log_fn
    ).run()


def run_seeds(
    env: RLEnv,
    training_states: TrainingState,
    config: TrainConfig,
    count: Int[Array, ""],
) -> tuple[TrainingState, dict[str, Array]]:
    """`count` iterations of every seed, without returning to the host.

    **Arguments:**

    - `env`, `config`: as for `ppo_step`.
    - `training_states`: leaves `[S, ...]`.
    - `count`: at most `config.iterations_per_call`; traced.

    **Returns:**

    `(training_states, metrics)`, the metrics `[iterations_per_call, S]`, of which the
    first `count` rows are filled. A seed with a fault stands still.
    """
    step = jax.jit(jax.vmap(lambda state: ppo_step(env, state, config)))
    _, shapes = jax.eval_shape(step, training_states)
    empty = jtu.tree_map(
        lambda leaf: jnp.zeros((config.iterations_per_call, *leaf.shape), leaf.dtype),
        shapes,
    )

    def iterate(
        index: Int[Array, ""], now: tuple[TrainingState, PyTree]
    ) -> tuple[TrainingState, PyTree]:
        states, rows = now
        states, metrics = step(states)
        rows = jtu.tree_map(lambda all_, row: all_.at[index].set(row), rows, metrics)
        return states, rows

    return jax.lax.fori_loop(0, count, iterate, (training_states, empty))


@final
class _SeedsTrainer:
    """The host's side of `train_seeds`."""

    def __init__(
        self,
        env: RLEnv,
        eval_env: RLEnv,
        networks: list[AnyModule],
        config: TrainConfig,
        roots: list[Key[Array, ""]],
        log_fn: SeedsLogFunction | None,
    ):
        self.env = env
        self.eval_env = eval_env
        self.config = config
        self.log_fn = log_fn
        self.steps = 0
        self.count = len(roots)
        self.metrics: list[Metrics] = [{} for _ in roots]
        self.eval_history: list[list[Metrics]] = [[] for _ in roots]
        self.faults = ["" for _ in roots]
        self.compile_seconds = 0.0
        self.train_seconds = 0.0
        self._chunk = compiled(run_seeds, static=(0,), donate=(1,))
        self._evaluation_keys = jnp.stack([derive(key, "evaluation") for key in roots])
        self._static = StaticHalf.of(networks[0])
        arrays = [eqx.filter(network, eqx.is_array) for network in networks]
        self.states: TrainingState = jax.vmap(self._new_state)(
            jtu.tree_map(lambda *leaves: jnp.stack(leaves), *arrays),
            jnp.stack([derive(key, "training") for key in roots]),
        )

    def run(self) -> list[TrainResult]:
        """Trains until the budget is used or Ctrl-C."""
        settings = self.config
        with DeferredInterrupt() as interrupt:
            try:
                start = time.perf_counter()
                self._advance(0)
                self.compile_seconds = time.perf_counter() - start
                if settings.eval.enabled:
                    self._evaluate()
                    self._log()
                interrupt.raise_if_requested()
                while self.steps < settings.ppo.total_steps:
                    intervals = [settings.eval.every_steps] * settings.eval.enabled
                    self._run_chunk(iterations_to_next(self.steps, intervals, settings))
                    interrupt.raise_if_requested()
            except KeyboardInterrupt:
                raise SeedsInterrupted(self.results()) from None
        return self.results()

    def results(self) -> list[TrainResult]:
        """What there is of every seed now."""
        return [self._result(index) for index in range(self.count)]

    def _result(self, index: int) -> TrainResult:
        state = self._state(index)
        steps = int(state.env_steps)
        return TrainResult(
            training_state=state,
            network=state.network,
            final_metrics=self.metrics[index],
            eval_history=self.eval_history[index],
            total_steps=steps,
            total_iterations=steps // self.config.ppo.steps_per_iteration,
            compile_seconds=self.compile_seconds,
            train_seconds=self.train_seconds,
            fault=self.faults[index],
        )

    def _state(self, index: int) -> TrainingState:
        return jtu.tree_map(lambda leaf: leaf[index], self.states)

    def _new_state(self, arrays: PyTree, key: Key[Array, ""]) -> TrainingState:
        network = eqx.combine(arrays, self._static.tree)
        return new_training_state(self.env, network, self.config, key=key)

    def _run_chunk(self, count: int) -> None:
        start = time.perf_counter()
        before = self.steps
        rows = self._advance(count)
        elapsed = time.perf_counter() - start
        self.train_seconds += elapsed
        self._notice_faults(rows, before)
        healthy = [seed for seed in range(self.count) if not self.faults[seed]]
        pace = count * self.config.ppo.steps_per_iteration * self.count / elapsed
        for index in range(count):
            self.steps += self.config.ppo.steps_per_iteration
            for seed in healthy:
                metrics: Metrics = {
                    name: float(row[index, seed]) for name, row in rows.items()
                }
                metrics["total_steps"] = self.steps
                if LoggingLevel.THROUGHPUT in self.config.ppo.logging_level:
                    metrics["throughput/train_sps"] = pace
                self.metrics[seed] = metrics
            if index == count - 1 and is_due(
                self.config.eval.every_steps,
                before=before,
                steps=self.steps,
                config=self.config,
            ):
                self._evaluate()
            self._log()

    def _notice_faults(self, rows: dict[str, Any], before: int) -> None:
        """Finds out which seeds have stopped in the last call, and why."""
        statuses = jax.device_get(self.states.status)
        for seed in range(self.count):
            if statuses[seed] == Status.HEALTHY or self.faults[seed]:
                continue
            state = self._state(seed)
            trained = int(state.env_steps) - before
            last_row = trained // self.config.ppo.steps_per_iteration
            self.faults[seed] = explain(
                state,
                float(rows["replay/log_ratio_max"][last_row, seed]),
                replay_tolerance(self.config.ppo, state.parameters),
            )

    def _advance(self, count: int) -> dict[str, Any]:
        self.states, rows = self._chunk(
            self.env, self.states, self.config, jnp.int32(count)
        )
        return jax.device_get(rows)

    def _evaluate(self) -> None:
        """Evaluates every seed on keys of its own."""
        settings = self.config.eval
        if not settings.enabled:
            return
        where = f"after {self.steps} steps"
        arrays = eqx.filter(self.states.network, eqx.is_array)

        def evaluate_one(arrays: PyTree, key: Key[Array, ""]) -> dict[str, Array]:
            return evaluate(
                self.eval_env,
                eqx.combine(arrays, self._static.tree),
                key=key,
                n_envs=settings.n_envs,
                max_episode_length=settings.max_episode_length,
                deterministic=settings.deterministic,
            )

        keys = derive(self._evaluation_keys, where)
        metrics = jax.device_get(jax.vmap(evaluate_one)(arrays, keys))
        for seed in range(self.count):
            numbers = {name: float(values[seed]) for name, values in metrics.items()}
            self.eval_history[seed].append({"step": self.steps, **numbers})
            self.metrics[seed] = {**self.metrics[seed], **numbers}

    def _log(self) -> None:
        if self.log_fn is not None:
            news = zip(self.metrics, self.faults, strict=True)
            self.log_fn([{} if fault else dict(one) for one, fault in news], self.steps)
