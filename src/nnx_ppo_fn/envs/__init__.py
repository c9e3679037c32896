"""Environments: the protocols, the built-in tasks, the probes, and `make`."""

from .cartpole import CartPole as CartPole
from .pendulum import Pendulum as Pendulum
from .probes import (
    AbstractProbe as AbstractProbe,
    ActionOfObservationProbe as ActionOfObservationProbe,
    ActionProbe as ActionProbe,
    CountingProbe as CountingProbe,
    DiscountingProbe as DiscountingProbe,
    MemoryProbe as MemoryProbe,
    TruncationProbe as TruncationProbe,
    ValueOfObservationProbe as ValueOfObservationProbe,
    ValueProbe as ValueProbe,
)
from .registry import (
    available as available,
    families as families,
    Family as Family,
    make as make,
    MissingAssetsError as MissingAssetsError,
    MissingExtraError as MissingExtraError,
    UnknownEnvironmentError as UnknownEnvironmentError,
)
from .types import (
    DescribedEnv as DescribedEnv,
    EnvState as EnvState,
    episode_flags as episode_flags,
    final_observation as final_observation,
    hides_final_observation as hides_final_observation,
    is_described as is_described,
    is_renderable as is_renderable,
    RenderableEnv as RenderableEnv,
    RenderingError as RenderingError,
    RLEnv as RLEnv,
    State as State,
)
