"""The folder of a training run: what is in it, how it is written, how it is read.

- `config.json`: everything that is needed to build the run again.
- `metrics.jsonl`: one JSON object per iteration. `step` counts environment steps, and
  a number that is not finite is `null`.
- `network.eqx`: the weights, as `equinox.tree_serialise_leaves` writes them.
- `learning_curve.png`: drawn by the command line.
- `tensorboard`, `wandb`, `videos`: folders that the command line fills where it is
  asked to.
"""

import contextlib
import importlib.metadata
import io
import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, final

import equinox as eqx
import jax.random as jr

from ._files import expect_folder, replacing
from ._run_records import (
    blaming,
    CONFIG as CONFIG,
    METRICS as METRICS,
    read_description as read_description,
    read_metrics as read_metrics,
    said,
    series as series,
)
from .algorithms.callbacks import JSONLines
from .algorithms.config import TrainConfig
from .algorithms.settings_json import as_json, from_json
from .algorithms.types import Metrics
from .envs.registry import make
from .envs.types import DescribedEnv
from .networks.types import StatefulModule
from .presets import build_network, NetworkOptions, options_in_use, Setup


NETWORK = "network.eqx"
PICTURE = "learning_curve.png"
TENSORBOARD = "tensorboard"
WANDB = "wandb"
VIDEOS = "videos"


@final
class RunFolder:
    """Writes a run while it trains.

    Every line of metrics is on disk before the next iteration begins, so that a run
    that dies leaves behind what it had.
    """

    path: Path
    _description: str
    _metrics: JSONLines

    def __init__(self, path: Path, env_name: str, policy: str, setup: Setup):
        """Makes the folder and describes the run in it.

        **Arguments:**

        - `path`: a folder that does not exist yet, or is empty.
        - `env_name`, `policy`: what the run was built from.
        - `setup`: what was built.

        **Raises:**

        `OSError`, see `expect_unused`, and where the folder cannot be made. Then there
        is none.
        """
        network = options_in_use(setup.eval_env, policy, setup.preset.network)
        description = {
            "environment": env_name,
            "policy": policy,
            "reward_scale": setup.preset.reward_scale,
            "network": as_json(network),
            "train": as_json(setup.config),
            # What the settings leave to the library, as it was decided here.
            "decided": {"replay_tolerance": setup.replay_tolerance},
            "versions": {
                name: _version(name) for name in ("nnx_ppo_fn", "jax", "equinox")
            },
        }
        self.path = path
        self._description = json.dumps(description, indent=2, allow_nan=False) + "\n"
        expect_unused(path)
        self._describe()
        try:
            self._metrics = JSONLines(path / METRICS)
        except OSError:
            self._remove(METRICS, CONFIG)
            raise

    def _describe(self) -> None:
        """Makes the folder with the description; leaves none if that fails."""
        self.path.mkdir(parents=True, exist_ok=True)
        # "x" fails where another process has just begun a run in the same folder.
        file = (self.path / CONFIG).open("x", encoding="utf-8")
        try:
            with file:
                file.write(self._description)
        except OSError:
            self._remove(CONFIG)
            raise

    def _remove(self, *names: str) -> None:
        for name in names:
            (self.path / name).unlink(missing_ok=True)
        remove_if_empty(self.path)

    def log(self, metrics: Metrics, step: int) -> None:
        """Appends one line of metrics.

        **Arguments:**

        - `metrics`: numbers by name.
        - `step`: environment steps so far.
        """
        self._metrics.on_iteration(metrics, step)

    def save_network(self, network: StatefulModule[Any, Any, Any]) -> None:
        """Writes the weights; a reader never sees half of them.

        A folder that somebody has taken away meanwhile is made again.

        **Raises:**

        `OSError` where they cannot be written; what was there before stays.
        """
        # Equinox would wrap the error of a full disk.
        written = io.BytesIO()
        eqx.tree_serialise_leaves(written, network)
        if not (self.path / CONFIG).exists():
            self._describe()
        with replacing(self.path / NETWORK) as unfinished:
            unfinished.write_bytes(written.getbuffer())

    @property
    def has_network(self) -> bool:
        """Whether weights were written."""
        return (self.path / NETWORK).exists()

    def close(self) -> None:
        """Closes the metrics."""
        self._metrics.close()

    def discard(self) -> None:
        """Takes the folder away again; what others have put there stays."""
        with contextlib.suppress(OSError):
            self.close()
        for name in (TENSORBOARD, WANDB, VIDEOS):
            shutil.rmtree(self.path / name, ignore_errors=True)
        self._remove(METRICS, NETWORK, PICTURE, CONFIG)


def remove_if_empty(folder: Path) -> None:
    """Removes a folder, unless there is something in it."""
    if folder.is_dir() and not any(folder.iterdir()):
        folder.rmdir()


def expect_unused(path: Path) -> None:
    """Raises unless a run can be written to `path`: absent, or an empty folder.

    **Raises:**

    - `FileExistsError` if there is something in it.
    - `NotADirectoryError` if it, or what it would be in, is a file.
    - `PermissionError` if nothing can be written there.
    """
    expect_folder(path)
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
    - `ValueError` if the description is not of a run, or the weights do not belong to
      the network that it describes.
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
    with blaming(folder / CONFIG):
        config = from_json(TrainConfig, said(description, "train"))
        options = from_json(NetworkOptions, said(description, "network"))
        env = make(description["environment"])
        template = eqx.filter_eval_shape(
            build_network, env, description["policy"], options, key=jr.key(0)
        )
    try:
        network = eqx.tree_deserialise_leaves(folder / NETWORK, template)
    except (RuntimeError, ValueError, EOFError) as error:
        raise ValueError(
            f"{folder / NETWORK} is damaged, or of another network than {CONFIG} "
            f"describes{_versions(description)}."
        ) from error
    return env, network, config


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def _versions(description: Mapping[str, Any]) -> str:
    versions = description.get("versions")
    if not isinstance(versions, Mapping):
        return ""
    listed = (f"{name} {version}" for name, version in versions.items())
    return f"; it was written with {', '.join(listed)}"
