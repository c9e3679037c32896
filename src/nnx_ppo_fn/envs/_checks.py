"""Checks of the settings that environments and wrappers share."""


def check_steps(owner: object, name: str, steps: int, *, at_least: int = 1) -> None:
    """Refuses an episode that is too short to take place.

    **Arguments:**

    - `owner`: the environment or wrapper, or its name, for the message.
    - `name`: what the number is called there.
    - `steps`: a number of steps.
    - `at_least`: the smallest number that makes sense.

    **Raises:**

    `ValueError` if `steps` is less than `at_least`.
    """
    if steps < at_least:
        owner = owner if isinstance(owner, str) else type(owner).__name__
        raise ValueError(f"{owner} needs {name} of at least {at_least}, got {steps}")
