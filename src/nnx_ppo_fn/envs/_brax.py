"""Brax's environments under this package's conventions (the extra `brax`)."""

import warnings
from functools import cache
from typing import Any, final

import brax.envs
import equinox as eqx
import jax
from brax.io import image

from ._adapters import check_options, defaults_of, frozen_options, leniency, Options
from ._simulated import AbstractSimulatedEnv, mujoco_camera, Simulated


# Brax's own training cuts episodes after so many steps.
_LIMIT = 1000

# Of an environment that has no clock.
_SECONDS_PER_STEP = 0.1


@final
class BraxEnv(AbstractSimulatedEnv):
    """A Brax environment by its id.

    Brax no longer maintains its environments and refers to MuJoCo Playground; they are
    small, and need no download.

    What is made is the environment itself, without Brax's wrappers: episodes are not
    restarted, so that the last step shows its own observation. Brax's environments know
    no time limit, so an end that they report is a termination, whatever they write into
    `info["time_out"]` (`inverted_pendulum` sets it whenever the pole falls). This class
    counts the steps and truncates. `info` holds `"terminated"` and `"truncated"` only,
    and failing on the last step allowed counts as terminated. Brax's state is
    `data.raw`; its metrics are kept, and observations of several parts stay mappings.

    Actions are vectors in [-1, 1]. Every environment that comes with Brax takes such:
    `humanoid`, `humanoidstandup`, `inverted_pendulum` and `pusher`, whose actuators
    have other limits, scale to them themselves, and the others' limits are [-1, 1].

    **Arguments:**

    - `id`: a name that Brax registers, such as `"inverted_pendulum"`.
    - `max_episode_length`: the time limit in steps; Brax's own training has 1000.
    - `options`: arguments of the environment's constructor, such as
      `backend="spring"`. Hashable values.

    **Raises:**

    - `ValueError` if `max_episode_length` is less than 1.
    - `TypeError` if it is not an integer, or the constructor has no such option.
    """

    id: str = eqx.field(static=True)
    options: Options = eqx.field(static=True)

    def __init__(self, id: str, *, max_episode_length: int = _LIMIT, **options: Any):
        self.id = id
        options["max_episode_length"] = max_episode_length
        self.options = frozen_options(f"brax:{id}", options)
        _build(self.id, self.options)

    @property
    def simulated(self) -> Simulated:
        """Brax's environment and what is known of it."""
        return _build(self.id, self.options)

    @property
    def _model(self) -> Any:
        # Not every environment has physics: `fast` only counts.
        system = getattr(self.simulated.env, "sys", None)
        return getattr(system, "mj_model", None)

    def _frames(self, raw: list[Any], height: int, width: int) -> Any:
        system = self.simulated.env.sys
        states = [state.pipeline_state for state in raw]
        camera = mujoco_camera(self._model, height, width)
        return image.render_array(system, states, height, width, camera)


@cache
def _build(id: str, options: Options) -> Simulated:
    """Kept outside of `BraxEnv`, since it holds arrays and compares by identity."""
    arguments = dict(options)
    limit = arguments.pop("max_episode_length")
    known = defaults_of(brax.envs._envs[id])  # pyright: ignore[reportPrivateUsage]
    if known is not None:
        check_options(f"brax:{id}", arguments, known)
    # The first use may be inside a trace, and what is cached must not be a tracer.
    with jax.ensure_compile_time_eval(), leniency():
        # Brax says with every environment that it is not maintained.
        warnings.filterwarnings("ignore", "Brax System", UserWarning)
        env = brax.envs.get_environment(id, **arguments)
        dt = float(getattr(env, "dt", _SECONDS_PER_STEP))
    return Simulated(f"brax:{id}", env, limit=limit, seconds_per_step=round(dt, 6))


def registered_ids() -> tuple[str, ...]:
    """The ids that Brax knows at this moment."""
    return tuple(brax.envs._envs)  # pyright: ignore[reportPrivateUsage]


make = BraxEnv
