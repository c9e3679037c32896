"""What to say of the failures of other people's code."""

from typing import Any


_WRAPPERS = f"{__package__}.wrappers."


def name_of(env: Any) -> str:
    """The class of an environment; of the one inside, if the wrapper is ours."""
    while type(env).__module__.startswith(_WRAPPERS):
        env = env.env
    return type(env).__name__


def reset_failure(env: Any, error: Exception) -> str:
    """What to say of an environment whose reset fails, in one line.

    **Arguments:**

    - `env`: the environment.
    - `error`: what its reset raised for the key of one environment.
    """
    hint = (
        "; pass the environment without its vmap or auto-reset wrapper, inside "
        "EpisodeWrapper"
        if "vmap" in str(error)
        else ""
    )
    return f"{name_of(env)}.reset(key) fails: {first_line(error)}{hint}"


def first_line(error: Exception) -> str:
    """The first line of what an error says; its name where it says nothing."""
    return (str(error).splitlines() or [type(error).__name__])[0]
