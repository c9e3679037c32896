"""A training of several seeds at once, each with a run folder inside the folder."""

import contextlib
import os
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import final

import jax
from jaxtyping import Array, Key

from ..algorithms.seeds import train_seeds
from ..algorithms.spreading import available_cores
from ..algorithms.stopping import SeedsInterrupted, SeedsStopped
from ..algorithms.types import TrainResult
from ..networks.types import AnyModule
from ..presets import build_network, Setup
from ..runs import PICTURE
from .abstract_training import AbstractTraining, Outcome, reason
from .comparison import draw_comparison
from .grouping import find_runs, group_runs
from .options import Request
from .progress import EVALUATION, number, TRAINING_RETURN
from .recording import Recorder
from .usage import UsageError
from .values import LARGEST_SEED


@final
class SeveralSeeds(AbstractTraining):
    """Trains by `train_seeds`."""

    def __init__(self, request: Request):
        """Takes the seeds of the request.

        **Raises:**

        `UsageError` for seeds or options that are not for several seeds.
        """
        assert request.seeds is not None
        self._request = request
        self._seeds = range(request.seed, request.seed + request.seeds)
        if self._seeds[-1] > LARGEST_SEED:
            raise UsageError(f"the last seed must be at most {LARGEST_SEED}")
        for option, given in (
            ("--tensorboard", request.tensorboard),
            ("--wandb", request.wandb is not None),
            ("--video.enabled", request.settings.config.video.enabled),
        ):
            if given:
                raise UsageError(f"{option} is for one seed; leave it or --seeds away")
        _make_cores_devices(len(self._seeds))

    @property
    def seeds(self) -> Sequence[int]:
        """From the request's seed on."""
        return self._seeds

    def place(self, path: Path, seed: int) -> Path:
        """A folder inside what was asked for."""
        return path / f"seed{seed}"

    def train(self, setup: Setup, recorder: Recorder) -> Outcome:
        """Trains, and tells the recorder."""

        def make_network(key: Key[Array, ""]) -> AnyModule:
            options = setup.preset.network
            return build_network(setup.eval_env, self._request.policy, options, key=key)

        interrupted, problems = False, list[str]()
        try:
            results = train_seeds(
                setup.train_env,
                make_network,
                setup.config,
                seeds=self._seeds,
                eval_env=setup.eval_env,
                log_fn=recorder.log,
            )
        except SeedsInterrupted as interruption:
            results, interrupted = interruption.results, True
        except SeedsStopped as stop:
            results, problems = stop.results, [reason(stop)]
        return Outcome(results, interrupted, [*problems, *self._faults(results)])

    def _faults(self, results: Sequence[TrainResult]) -> list[str]:
        """Why seeds have stopped; what several have in common is said once."""
        seeds: dict[str, list[str]] = {}
        for seed, result in zip(self._seeds, results, strict=True):
            if result.fault:
                seeds.setdefault(result.fault, []).append(str(seed))
        return [
            f"seed{'s' if len(those) > 1 else ''} {', '.join(those)}: {fault}"
            for fault, those in seeds.items()
        ]

    def evaluation(self, results: Sequence[TrainResult]) -> str:
        """The mean return, and its spread over seeds."""
        latest = [
            result.eval_history[-1][EVALUATION]
            for result in results
            if result.eval_history
        ]
        if not latest:
            return ""
        mean, spread = statistics.fmean(latest), statistics.pstdev(latest)
        return f"{number(mean)} ± {number(spread)} over seeds"

    def draw(self, path: Path) -> None:
        """All seeds in one picture: of evaluations, or else of the training itself."""
        runs = find_runs([path])
        for metric in (EVALUATION, TRAINING_RETURN):
            try:
                groups, _ = group_runs(runs, metric)
            except UsageError:
                continue
            draw_comparison(groups, path / PICTURE, metric=metric)
            return


def _make_cores_devices(seeds: int) -> None:
    """Lets every core of the CPU train seeds of its own, unless that is settled.

    It must come before anything uses JAX; where something has, such as a command before
    in the same process, all cores stay one device.
    """
    is_settled = getattr(jax.config, "jax_num_cpu_devices", -1) != -1
    flags = os.environ.get("XLA_FLAGS", "")
    if is_settled or "xla_force_host_platform_device_count" in flags:
        return
    with contextlib.suppress(RuntimeError):
        jax.config.update("jax_num_cpu_devices", min(seeds, available_cores()))
