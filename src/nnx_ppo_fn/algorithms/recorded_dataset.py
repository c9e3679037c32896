"""A recording as a data set of xarray."""

import re
from collections.abc import Mapping
from typing import Any

from numpy.typing import NDArray

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
_CONNECTION = re.compile(r"(.*\.)[^.\[\]]+->([^.\[\]()]+)(?: \(\d+\))?", re.DOTALL)
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
    arrays: dict[str, tuple[NDArray[Any], dict[str, str]]] = {}
    for part, (tree, about) in parts.items():
        for name, array in numbers_in(tree, part):
            # An entry of an output may be written as a module inside of it is.
            while name in arrays:
                name += "'"
            arrays[name] = (array, {"description": about})
    axes = _axes({name: array for name, (array, _) in arrays.items()})
    variables = {
        name: (("step", "environment", *axes[name]), *arrays[name]) for name in arrays
    }
    step = {"description": "how many steps came before", "units": "steps"}
    coordinates = {
        "step": ("step", range(steps), step),
        "environment": ("environment", range(n_envs)),
    }
    return xarray.Dataset(variables, coordinates, {"description": _ABOUT})


def _axes(arrays: Mapping[str, NDArray[Any]]) -> dict[str, list[str]]:
    """What the axes of each variable are called, after step and environment.

    They are the variable's own. A connection has that of the population at which it
    arrives, unless that has another size, as may be outside of a graph.
    """
    axes: dict[str, list[str]] = {}
    for name, array in arrays.items():
        own = f"{name}_feature"
        several = [f"{own}_{axis}" for axis in range(array.ndim - 2)]
        axes[name] = [own] if array.ndim == 3 else several
    sizes = {axes[name][0]: one.shape[2] for name, one in arrays.items() if axes[name]}
    for name, array in arrays.items():
        connection = _CONNECTION.fullmatch(name)
        if connection is None or array.ndim != 3:
            continue
        shared = f"{connection[1]}{connection[2]}_feature"
        if sizes.setdefault(shared, array.shape[2]) == array.shape[2]:
            axes[name] = [shared]
    return axes
