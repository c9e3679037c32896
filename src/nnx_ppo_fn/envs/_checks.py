"""Checks of the settings that environments and wrappers share."""

from typing import Any

import numpy as np


def check_steps(owner: object, name: str, steps: Any, *, at_least: int = 1) -> None:
    """Refuses an episode that is too short to take place.

    **Arguments:**

    - `owner`: the environment or wrapper, or its name, for the message.
    - `name`: what the number is called there.
    - `steps`: a number of steps.
    - `at_least`: the smallest number that makes sense.

    **Raises:**

    `TypeError` if `steps` is not an integer, `ValueError` if it is less than
    `at_least`.
    """
    owner = owner if isinstance(owner, str) else type(owner).__name__
    if isinstance(steps, bool) or not isinstance(steps, (int, np.integer)):
        raise TypeError(f"{owner} needs {name} to be an integer, got {steps!r}")
    if steps < at_least:
        raise ValueError(f"{owner} needs {name} of at least {at_least}, got {steps}")
