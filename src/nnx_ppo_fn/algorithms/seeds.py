"""Trains several seeds at once, in one compiled program."""

import functools as ft
import operator
import time
from collections.abc import Callable, Sequence
from typing import Any, final, TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.tree_util as jtu
from jax.sharding import Mesh
from jaxtyping import Array, Int, Key

from .._custom_types import PyTree
from .._keys import derive
from ..envs import RLEnv
from ..networks.types import AnyModule
from .checks import check_acting
from .compiled import compiled, step_compiler_options
from .config import expect_config, expect_seed, LoggingLevel, TrainConfig
from .evaluation import evaluate
from .faults import explain
from .interrupts import DeferredInterrupt
from .loop import run_iterations
from .run_keys import RunKeys
from .schedule import is_due, iterations_to_next
from .spreading import (
    brought_home,
    devices_for,
    for_each_row,
    padded,
    shared,
    spread,
)
from .step import new_training_state
from .stopping import SeedsInterrupted, SeedsStopped
from .tolerance import replay_tolerance
from .types import Metrics, own, StaticHalf, Status, TrainingState, TrainResult


SeedsLogFunction: TypeAlias = Callable[[list[Metrics], int], None]


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

    A seed's network and numbers are those of `train_ppo` with that seed alone, up to
    rounding.

    All devices of the process take part at the same time; only one within
    `jax.default_device` or `jax.set_mesh`. A GPU trains its seeds side by side, a CPU
    one after the other. The cores of a CPU are one device, unless
    `jax.config.update("jax_num_cpu_devices", cores)` comes before the first use of JAX,
    as it does in `nnx-ppo-fn train --seeds`: two cores then took little more than half
    of the time.

    **Arguments:**

    - `env`: the environment to train in.
    - `make_network`: builds a network from a key; every time of the same structure.
      It gets `derive(jax.random.key(seed), "initial weights")`.
    - `config`: the settings. Its own seed is not used, and there are no videos and
      checkpoints.
    - `seeds`: one training each, all of them different.
    - `eval_env`: to evaluate in; `env` by default.
    - `log_fn`: called like `train_ppo`'s, with a list of one `metrics` per seed, empty
      for a seed that has stopped. `throughput/train_sps` counts all seeds' steps.

    **Returns:**

    One `TrainResult` per seed. A seed in which numbers go wrong stops by itself and
    keeps its last good state, and `fault` says why; the others go on.

    **Raises:**

    - what `new_training_state` raises, and `ValueError` or `TypeError` for seeds that
      are not different integers or networks that are not alike, before anything
      compiles.
    - `SeedsStopped` where `log_fn` fails, and `SeedsInterrupted`, a
      `KeyboardInterrupt`, on Ctrl-C. Both hold the results so far.
    """
    config = TrainConfig() if config is None else config
    expect_config(config)
    keys = [RunKeys.of(jax.random.key(seed)) for seed in _expect_seeds(seeds)]
    networks = [own(make_network(one.initial_weights)) for one in keys]
    if any(StaticHalf.of(one) != StaticHalf.of(networks[0]) for one in networks):
        raise ValueError(
            "make_network must build the same structure for every key; functions in it "
            "must be defined outside, since each call makes another lambda"
        )
    if eval_env is None:
        eval_env = env
    else:
        check_acting(eval_env, networks[0])
    return _SeedsTrainer(env, eval_env, networks, config, keys, log_fn).run()


def run_seeds(
    env: RLEnv,
    mesh: Mesh,
    training_states: TrainingState,
    config: TrainConfig,
    count: Int[Array, ""],
) -> tuple[TrainingState, dict[str, Array]]:
    """`run_iterations` for every seed.

    **Arguments:**

    - `env`, `config`, `count`: as for `run_iterations`.
    - `mesh`: devices, each of which trains its part of the seeds.
    - `training_states`: leaves `[S, ...]`.

    **Returns:**

    `(training_states, metrics)`, the metrics `[S, iterations_per_call]`. A seed with a
    fault stands still.
    """
    states, metrics, _ = for_each_row(
        ft.partial(run_iterations, env), training_states, config, count, mesh=mesh
    )
    return states, metrics


@final
class _SeedsTrainer:
    """The host's side of `train_seeds`."""

    def __init__(
        self,
        env: RLEnv,
        eval_env: RLEnv,
        networks: list[AnyModule],
        config: TrainConfig,
        keys: list[RunKeys],
        log_fn: SeedsLogFunction | None,
    ):
        self.env = env
        self.eval_env = eval_env
        self.config = config
        self.log_fn = log_fn
        self.steps = 0
        self.seeds = range(len(keys))
        self.metrics: list[Metrics] = [{} for _ in keys]
        self.eval_history: list[list[Metrics]] = [[] for _ in keys]
        self.faults = ["" for _ in keys]
        self.compile_seconds = 0.0
        self.train_seconds = 0.0
        self._interrupt = DeferredInterrupt()
        self._mesh = devices_for(len(keys))
        self._chunk = compiled(
            run_seeds, static=(0, 1), donate=(2,), options=step_compiler_options()
        )
        keys = padded(keys, self._mesh.size)
        networks = padded(networks, self._mesh.size)
        self._keys: RunKeys = _stacked(keys)
        self._static = StaticHalf.of(networks[0])
        states: TrainingState = jax.vmap(self._new_state)(
            _stacked([eqx.filter(network, eqx.is_array) for network in networks]),
            self._keys.training,
        )
        self.states = spread(states, self._mesh)

    def run(self) -> list[TrainResult]:
        """Trains until the budget is used, `log_fn` fails, or Ctrl-C."""
        with self._interrupt:
            try:
                self._train()
            except KeyboardInterrupt:
                raise SeedsInterrupted(self.results()) from None
        return self.results()

    def results(self) -> list[TrainResult]:
        """What there is of every seed now."""
        return [self._result(seed) for seed in self.seeds]

    def _train(self) -> None:
        if self.config.ppo.total_steps:
            start = time.perf_counter()
            self._advance(0)
            self.compile_seconds = time.perf_counter() - start
        evaluation = self.config.eval
        if evaluation.enabled:
            self._evaluate()
            self._tell(self.metrics)
        self._interrupt.raise_if_requested()
        while self.steps < self.config.ppo.total_steps:
            intervals = [evaluation.every_steps] if evaluation.enabled else []
            self._run_chunk(iterations_to_next(self.steps, intervals, self.config))
            self._interrupt.raise_if_requested()

    def _run_chunk(self, count: int) -> None:
        start = time.perf_counter()
        before = self.steps
        rows = self._advance(count)
        elapsed = time.perf_counter() - start
        self.train_seconds += elapsed
        per_iteration = self.config.ppo.steps_per_iteration
        trained = [steps - before for steps in self._steps_of_seeds()]
        self._notice_faults(rows, trained)
        for index in range(count):
            self.steps += per_iteration
            going_on = [s for s in self.seeds if trained[s] > index * per_iteration]
            for seed in going_on:
                self.metrics[seed] = {
                    name: float(row[seed, index]) for name, row in rows.items()
                }
                self.metrics[seed]["total_steps"] = self.steps
                if LoggingLevel.THROUGHPUT in self.config.ppo.logging_level:
                    pace = count * per_iteration * len(self.seeds) / elapsed
                    self.metrics[seed]["throughput/train_sps"] = pace
            if index == count - 1 and is_due(
                self.config.eval.every_steps,
                before=before,
                steps=self.steps,
                config=self.config,
            ):
                self._evaluate()
            self._tell([self.metrics[s] if s in going_on else {} for s in self.seeds])

    def _advance(self, count: int) -> dict[str, Any]:
        """Runs `count` iterations of every seed, and waits for them."""
        self.states, rows = self._chunk(
            self.env,
            self._mesh,
            self.states,
            shared(self.config, self._mesh),
            jnp.int32(count),
        )
        return jax.device_get(rows)

    def _notice_faults(self, rows: dict[str, Any], trained: list[int]) -> None:
        """Finds out which seeds have stopped in the last call, and why."""
        statuses = jax.device_get(self.states.status)
        for seed in self.seeds:
            if statuses[seed] == Status.HEALTHY or self.faults[seed]:
                continue
            state = self._state(seed)
            row = trained[seed] // self.config.ppo.steps_per_iteration
            self.faults[seed] = explain(
                state,
                float(rows["replay/log_ratio_max"][seed, row]),
                replay_tolerance(self.config.ppo, state.parameters),
            )

    def _evaluate(self) -> None:
        """Evaluates every seed that goes on, on keys of its own."""
        evaluation = self.config.eval
        if not evaluation.enabled:
            return

        def evaluate_one(arrays: PyTree, key: Key[Array, ""]) -> dict[str, Array]:
            return evaluate(
                self.eval_env,
                eqx.combine(arrays, self._static.tree),
                key=key,
                n_envs=evaluation.n_envs,
                max_episode_length=evaluation.max_episode_length,
                deterministic=evaluation.deterministic,
            )

        arrays = eqx.filter(self.states.network, eqx.is_array)
        keys = derive(self._keys.evaluation, f"after {self.steps} steps")
        metrics = jax.device_get(jax.vmap(evaluate_one)(arrays, keys))
        for seed in self.seeds:
            if not self.faults[seed]:
                numbers = {name: float(row[seed]) for name, row in metrics.items()}
                self.eval_history[seed].append({"step": self.steps, **numbers})
                self.metrics[seed] = {**self.metrics[seed], **numbers}

    def _tell(self, metrics: list[Metrics]) -> None:
        """Tells of what has just been measured; see `Trainer`."""
        if self.log_fn is None:
            return
        try:
            self.log_fn([dict(one) for one in metrics], self.steps)
        except KeyboardInterrupt:
            self._interrupt.requested = True
        except Exception as error:
            raise SeedsStopped(
                f"log_fn failed after {self.steps} environment steps: "
                f"{type(error).__name__}: {error}",
                self.results(),
            ) from error

    def _result(self, seed: int) -> TrainResult:
        state = self._state(seed)
        steps = int(state.env_steps)
        return TrainResult(
            training_state=state,
            network=state.network,
            final_metrics=self.metrics[seed],
            eval_history=self.eval_history[seed],
            total_steps=steps,
            total_iterations=steps // self.config.ppo.steps_per_iteration,
            compile_seconds=self.compile_seconds,
            train_seconds=self.train_seconds,
            fault=self.faults[seed],
        )

    def _state(self, seed: int) -> TrainingState:
        return brought_home(_row(self.states, jnp.int32(seed)), self._mesh)

    def _steps_of_seeds(self) -> list[int]:
        counts = self.states.env_steps
        return [int(_row(counts, jnp.int32(seed))) for seed in self.seeds]

    def _new_state(self, arrays: PyTree, key: Key[Array, ""]) -> TrainingState:
        network = eqx.combine(arrays, self._static.tree)
        return new_training_state(self.env, network, self.config, key=key)


def _expect_seeds(seeds: Any) -> list[int]:
    """The seeds as Python integers, if they are what they should be."""
    try:
        numbers = [operator.index(seed) for seed in seeds]
    except TypeError as error:
        raise TypeError(f"expected a list of integer seeds, got {seeds!r}") from error
    for number in numbers:
        expect_seed(number)
    if not numbers or len(set(numbers)) < len(numbers):
        raise ValueError(f"expected seeds, all different, got {numbers}")
    return numbers


@jax.jit
def _row(tree: Any, seed: Int[Array, ""]) -> Any:
    """One seed of all; compiled for all seeds at once."""
    return jtu.tree_map(lambda leaf: leaf[seed], tree)


def _stacked(trees: list[Any]) -> Any:
    return jtu.tree_map(lambda *leaves: jnp.stack(leaves), *trees)
