"""A recording as a data set of xarray."""

from typing import Any

from .._extras import import_extra
from .recorded_arrays import NETWORK, numbers_in


_DESCRIPTIONS = {
    "observations": "what the network saw",
    "actions": "what it did",
    "rewards": "what that brought",
    "ongoing": "whether the step belongs to the episode, its last step included",
    "done": "whether an episode ended with this step",
    "truncated": "whether a time limit ended it",
    "state_data": "of the environment's state that the network saw",
}
_ABOUT = (
    "One episode in each environment. Steps after its end are in it and mean nothing: "
    "data.where(data.ongoing) makes them NaN."
)


def as_dataset(recording: Any) -> Any:
    """What `Recording.to_xarray` returns.

    **Arguments:**

    - `recording`: a `Recording`.
    """
    xarray = import_extra("xarray", extra="xarray", purpose="Recording.to_xarray")
    steps, n_envs = recording.ongoing.shape
    parts = {
        path or NETWORK: (activation, f"activity of the module at {path!r}")
        for path, activation in recording.activations.items()
    }
    parts |= {
        name: (getattr(recording, name), about) for name, about in _DESCRIPTIONS.items()
    }
    variables = {
        name: (_dimensions(name, array.ndim), array, {"description": about})
        for part, (tree, about) in parts.items()
        for name, array in numbers_in(tree, part)
    }
    step = {"description": "how many steps came before", "units": "steps"}
    coordinates = {
        "step": ("step", range(steps), step),
        "environment": ("environment", range(n_envs)),
    }
    return xarray.Dataset(variables, coordinates, {"description": _ABOUT})


def _dimensions(name: str, rank: int) -> tuple[str, ...]:
    """Step and environment, then an axis that is the variable's own, or several."""
    axes = [f"{name}_feature"] if rank == 3 else []
    if rank > 3:
        axes = [f"{name}_feature_{axis}" for axis in range(rank - 2)]
    return ("step", "environment", *axes)
