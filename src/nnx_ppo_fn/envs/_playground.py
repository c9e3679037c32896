"""MuJoCo Playground's environments under this package's conventions (the extra
`playground`)."""

import subprocess
from collections.abc import Mapping
from functools import cache
from typing import Any, cast, final

import equinox as eqx
import jax
from mujoco_playground import dm_control_suite, locomotion, manipulation, registry

from ._adapters import (
    check_options,
    frozen_options,
    leniency,
    MissingAssetsError,
    Options,
)
from ._checks import check_steps
from ._simulated import AbstractSimulatedEnv, mujoco_camera, Simulated


@final
class PlaygroundEnv(AbstractSimulatedEnv):
    """A MuJoCo Playground environment by its id.

    What is made is the environment itself, without Playground's wrappers: episodes are
    not restarted, so that the last step shows its own observation. Playground's
    environments know no time limit, so an end that they report is a termination,
    whatever they write into `info["time_out"]` (the cart-pole with `vision` sets it at
    every end). This class counts the steps and truncates. `info` holds `"terminated"`
    and `"truncated"` only, and failing on the last step allowed counts as terminated.
    Playground's state is `data.raw`; its metrics are kept, and observations of several
    parts stay mappings.

    Actions are vectors in [-1, 1]: the actuators of the control suite have these
    limits, and the robots' tasks turn them into joint targets themselves. Where the
    configuration says `action_repeat`, an action is held for that many of its steps,
    their rewards are summed, and all of it is one step here.

    The physics run in MJX's JAX implementation, or, where JAX has a GPU, in the one
    that the environment's configuration names (Warp).

    **Arguments:**

    - `id`: a name that Playground registers, such as `"CartpoleBalance"`.
    - `max_episode_length`: the time limit in steps, in the place of the
      configuration's `episode_length`.
    - `options`: entries of the environment's configuration, such as `ctrl_dt=0.02`;
      `**{"vision_config.nworld": 1}` reaches a nested one. Hashable values.

    **Raises:**

    - `ValueError` if the time limit or `action_repeat` is less than 1.
    - `TypeError` if the configuration has no such entry, or one of another kind.
    - `MissingAssetsError`, an `ImportError`, if the robot's model has to be downloaded
      and cannot be.
    """

    id: str = eqx.field(static=True)
    options: Options = eqx.field(static=True)

    def __init__(
        self, id: str, *, max_episode_length: int | None = None, **options: Any
    ):
        self.id = id
        if max_episode_length is not None:
            options["max_episode_length"] = max_episode_length
        self.options = frozen_options(f"playground:{id}", options)
        _build(self.id, self.options)

    @property
    def simulated(self) -> Simulated:
        """Playground's environment and what is known of it."""
        return _build(self.id, self.options)

    @property
    def _model(self) -> Any:
        return self.simulated.env.mj_model

    def _frames(self, raw: list[Any], height: int, width: int) -> Any:
        env = self.simulated.env
        camera = mujoco_camera(self._model, height, width)
        return env.render(raw, height=height, width=width, camera=camera)


@cache
def _build(id: str, options: Options) -> Simulated:
    """Kept outside of `PlaygroundEnv`, since it holds arrays and compares by
    identity."""
    overrides = dict(options)
    limit = overrides.pop("max_episode_length", None)
    config = registry.get_default_config(id)
    name = f"playground:{id}"
    check_options(name, overrides, _flat(config.to_dict()))
    repeat = overrides.get("action_repeat", config.action_repeat)
    check_steps(name, "action_repeat", repeat)
    if "impl" in config and jax.default_backend() != "gpu":
        overrides.setdefault("impl", "jax")
    if limit is not None:
        check_steps(name, "max_episode_length", limit)
        # Some tasks show the time that is left, or restart with it.
        overrides.setdefault("episode_length", limit * repeat)
    # The first use may be inside a trace, and what is cached must not be a tracer.
    with jax.ensure_compile_time_eval(), leniency():
        env = _load(id, overrides)
    config = env._config
    return Simulated(
        name,
        env,
        limit=-(-int(config.episode_length) // repeat) if limit is None else limit,
        seconds_per_step=repeat * float(env.dt),
        action_repeat=repeat,
    )


def _load(id: str, overrides: dict[str, Any]) -> Any:
    try:
        return registry.load(id, config_overrides=overrides)
    except (subprocess.CalledProcessError, FileNotFoundError) as error:
        raise MissingAssetsError(
            f"playground:{id} needs the robot models of mujoco_menagerie, which "
            f"Playground downloads with git at the first use; this failed: {error}"
        ) from error


def _flat(config: Mapping[str, Any]) -> dict[str, Any]:
    """All entries by name, those of nested ones with dots."""
    entries: dict[str, Any] = {}
    for name, value in config.items():
        if isinstance(value, Mapping):
            nested = _flat(cast(Mapping[str, Any], value))
            entries |= {f"{name}.{inner}": nested[inner] for inner in nested}
        else:
            entries[name] = value
    return entries


def registered_ids() -> tuple[str, ...]:
    """The ids that Playground knows at this moment."""
    suites = (dm_control_suite, locomotion, manipulation)
    return tuple(id for suite in suites for id in suite.ALL_ENVS)


make = PlaygroundEnv
