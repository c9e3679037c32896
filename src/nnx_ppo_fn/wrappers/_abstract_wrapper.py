"""What all wrappers pass on from the environment inside."""

import dataclasses
from typing import Any, cast, TypeVar

import equinox as eqx

from ..envs.types import EnvState, RLEnv


S = TypeVar("S", bound=EnvState)


class AbstractWrapper(eqx.Module):
    """An environment around another, `env`, whose attributes it shows as its own.

    A wrapper compares and hashes by value if the environment inside does.
    """

    env: eqx.AbstractVar[RLEnv]

    @property
    def observation_size(self) -> Any:
        """That of the environment inside."""
        return cast(Any, self.env).observation_size

    @property
    def action_size(self) -> int:
        """That of the environment inside."""
        return cast(Any, self.env).action_size

    @property
    def discrete(self) -> bool:
        """That of the environment inside."""
        return cast(Any, self.env).discrete

    def __getattr__(self, name: str) -> Any:
        # Without `env`, as while unpickling, there is nothing to ask.
        if name == "env" or (name.startswith("__") and name.endswith("__")):
            raise AttributeError(name)
        return getattr(self.env, name)


def replace(state: S, **changes: Any) -> S:
    """`dataclasses.replace` for the state of any environment.

    **Raises:**

    `TypeError` if the state is not a dataclass.
    """
    if not dataclasses.is_dataclass(state):
        raise TypeError(
            "wrappers need an environment whose state is a dataclass, got a state of "
            f"type {type(state).__name__}"
        )
    return cast(S, dataclasses.replace(cast(Any, state), **changes))
