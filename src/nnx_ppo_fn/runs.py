"""The folder of a training run: what is in it, how it is written, how it is read.

- `config.json`: everything that is needed to build the run again.
- `metrics.jsonl`: one JSON object per iteration. `step` counts environment steps, and
  a number that is not finite is `null`.
- `network.eqx`: the weights, as `equinox.tree_serialise_leaves` writes them.
- `learning_curve.png`: drawn by the command line.
"""

import functools as ft
import importlib.metadata
import json
import math
import operator
from collections.abc import Mapping
from pathlib import Path
from typing import Any, final, TypeAlias

import equinox as eqx
import jax.random as jr

from .algorithms.callbacks import JSONLines
from .algorithms.config import (
    as_json,
    EvalConfig,
    LoggingLevel,
    PPOConfig,
    TrainConfig,
    VideoConfig,
)
from .envs.registry import make
from .envs.types import DescribedEnv
from .networks.types import StatefulModule
from .presets import build_network, NetworkOptions, options_in_use, Setup


CONFIG = "config.json"
METRICS = "metrics.jsonl"
NETWORK = "network.eqx"
PICTURE = "learning_curve.png"

Metrics: TypeAlias = Mapping[str, int | float]
"""Numbers by name; counts are integers."""


@final
class RunFolder:
    """Writes a run while it trains.

    Every line of metrics is on disk before the next iteration begins, so that a run
    that dies leaves behind what it had.
    """

    path: Path
    _metrics: JSONLines

    def __init__(self, path: Path, env_name: str, policy: str, setup: Setup):
        """Makes the folder and describes the run in it.

        **Arguments:**

        - `path`: a folder that does not exist yet, or is empty.
        - `env_name`, `policy`: what the run was built from.
        - `setup`: what was built.

        **Raises:**

        `OSError`, see `expect_unused`, and where the folder cannot be made.
        """
        expect_unused(path)
        path.mkdir(parents=True, exist_ok=True)
        network = options_in_use(setup.eval_env, policy, setup.preset.network)
        description = {
            "environment": env_name,
            "policy": policy,
            "reward_scale": setup.preset.reward_scale,
            "network": {name: as_json(option) for name, option in network.items()},
            "train": as_json(setup.config),
            # What the settings leave to the library, as it was decided here.
            "decided": {"replay_tolerance": setup.replay_tolerance},
            "versions": {
                name: _version(name) for name in ("nnx_ppo_fn", "jax", "equinox")
            },
        }
        # "x" fails where another process has just begun a run in the same folder.
        with (path / CONFIG).open("x", encoding="utf-8") as file:
            json.dump(description, file, indent=2, allow_nan=False)
            file.write("\n")
        self.path = path
        self._metrics = JSONLines(path / METRICS)

    def log(self, metrics: Metrics, step: int) -> None:
        """Appends one line of metrics.

        **Arguments:**

        - `metrics`: numbers by name.
        - `step`: environment steps so far.
        """
        self._metrics.on_iteration(metrics, step)

    def save_network(self, network: StatefulModule[Any, Any, Any]) -> None:
        """Writes the weights; a reader never sees half of them."""
        unfinished = self.path / (NETWORK + ".part")
        eqx.tree_serialise_leaves(unfinished, network)
        unfinished.replace(self.path / NETWORK)

    @property
    def has_network(self) -> bool:
        """Whether weights were written."""
        return (self.path / NETWORK).exists()

    def close(self) -> None:
        """Closes the metrics."""
        self._metrics.close()

    def discard(self) -> None:
        """Takes the folder away again; what others have put there stays."""
        self.close()
        for name in (METRICS, CONFIG):
            (self.path / name).unlink(missing_ok=True)
        if self.path.is_dir() and not any(self.path.iterdir()):
            self.path.rmdir()


def expect_unused(path: Path) -> None:
    """Raises unless a run can be written to `path`: absent, or an empty folder.

    **Raises:**

    - `FileExistsError` if there is something in it.
    - `NotADirectoryError` if it, or what it would be in, is a file.
    """
    for place in (path, *path.parents):
        if place.exists() and not place.is_dir():
            inside = "" if place == path else f", so {path} cannot be inside it"
            raise NotADirectoryError(
                f"{place} is not a folder but a file{inside}. Choose another folder."
            )
    if (path / CONFIG).exists():
        raise FileExistsError(
            f"{path} already holds a run. Choose another folder, or move this one away."
        )
    if path.exists() and any(path.iterdir()):
        raise FileExistsError(
            f"{path} is not an empty folder. Choose one that does not exist yet."
        )


def load_run(
    folder: str | Path,
) -> tuple[DescribedEnv, StatefulModule[Any, Any, Any], TrainConfig]:
    """Builds a finished run again and loads its weights.

    **Arguments:**

    - `folder`: where the run was written.

    **Returns:**

    `(env, network, config)`: the environment with its rewards as they are, the
    trained network, and the settings that it was trained with.

    **Raises:**

    - `FileNotFoundError` if the folder does not hold a run with weights.
    - `ValueError` if the weights do not belong to the network that the run describes.
    - `ImportError` if the environment needs an extra that is not installed.

    **Example:**

    ```python
    env, network, config = load_run("runs/my-run")
    metrics = evaluate(env, network, key=jr.key(0), n_envs=64, max_episode_length=500)
    ```
    """
    folder = Path(folder)
    for name in (CONFIG, NETWORK):
        if not (folder / name).is_file():
            raise FileNotFoundError(
                f"{folder} holds no finished run: it has no {name}."
            )
    description = read_description(folder)
    env = make(description["environment"])
    template = eqx.filter_eval_shape(
        build_network,
        env,
        description["policy"],
        NetworkOptions(**description["network"]),
        key=jr.key(0),
    )
    try:
        network = eqx.tree_deserialise_leaves(folder / NETWORK, template)
    except (RuntimeError, ValueError, EOFError) as error:
        raise ValueError(
            f"{folder / NETWORK} does not fit the network that {CONFIG} describes. "
            f"It was written with {_in_words(description['versions'])}."
        ) from error
    return env, network, _train_config(description["train"])


def read_description(folder: Path) -> dict[str, Any]:
    """What `config.json` says."""
    return json.loads((folder / CONFIG).read_text(encoding="utf-8"))


def read_metrics(folder: Path) -> list[Metrics]:
    """All lines of `metrics.jsonl`; a `null` is NaN again."""
    lines = (folder / METRICS).read_text(encoding="utf-8").splitlines()
    return [
        {
            name: math.nan if value is None else value
            for name, value in json.loads(line).items()
        }
        for line in lines
    ]


def _train_config(settings: Mapping[str, Any]) -> TrainConfig:
    """The settings of a run; what an older version did not know has its default."""
    ppo: dict[str, Any] = dict(settings["ppo"])
    names: list[str] = ppo["logging_level"]
    flags = (LoggingLevel[name] for name in names)
    ppo["logging_level"] = ft.reduce(operator.or_, flags, LoggingLevel.NONE)
    if ppo["logging_percentiles"] is not None:
        ppo["logging_percentiles"] = tuple(ppo["logging_percentiles"])
    whole: dict[str, Any] = dict(settings)
    whole["ppo"] = PPOConfig(**ppo)
    whole["eval"] = EvalConfig(**settings["eval"])
    whole["video"] = VideoConfig(**settings.get("video", {}))
    return TrainConfig(**whole)


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def _in_words(versions: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {version}" for name, version in versions.items())
