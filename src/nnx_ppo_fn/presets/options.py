"""What a preset says: the whole run, and the network."""

import dataclasses
from typing import Any, cast, final, get_args, Literal, TypeAlias, TypeVar

import equinox as eqx

from .._expect import expect_count, expect_range
from .._suggest import did_you_mean
from ..algorithms.config import TrainConfig


Policy: TypeAlias = Literal[
    "mlp", "lstm", "gru", "lru", "min_gru", "attention", "variational"
]
"""The kinds of network that `build` knows."""

POLICIES: tuple[Policy, ...] = get_args(Policy)
"""All of them."""

# The ends of what float32 can tell from 0 and from infinity.
_SMALLEST, _LARGEST = 1e-37, 1e38

Settings = TypeVar("Settings", bound=eqx.Module)


@final
class NetworkOptions(eqx.Module):
    """The size and the make-up of a preset's network.

    - `hidden_size`: features of every hidden layer, of a memory and of its heads.
    - `latent_size`: latents of the variational policy's bottleneck.
    - `kl_weight`: what the bottleneck pays for a nat of information.
    - `activation`: of the hidden layers, by name.
    - `entropy_weight`: how much the sampler's entropy is rewarded.
    - `min_std`: the smallest standard deviation of a continuous action.
    - `policy_scale`: scale of the initial weights of the layer in front of the
      sampler; a small one begins with nearly uniform actions.
    """

    hidden_size: int = eqx.field(static=True, default=64)
    latent_size: int = eqx.field(static=True, default=16)
    kl_weight: float = 1e-3
    activation: str = eqx.field(static=True, default="tanh")
    entropy_weight: float = 0.01
    min_std: float = 0.1
    policy_scale: float = 0.01

    def __check_init__(self):
        """Refuses sizes of nothing, and numbers that are none."""
        for name in ("hidden_size", "latent_size"):
            expect_count(name, getattr(self, name), least=1)
        for name in ("kl_weight", "min_std", "policy_scale"):
            expect_range(name, getattr(self, name), 0.0, _LARGEST)
        expect_range("entropy_weight", self.entropy_weight, -_LARGEST, _LARGEST)


@final
class Preset(eqx.Module):
    """How to train on one environment.

    - `config`: the whole run.
    - `network`: options of the policy.
    - `reward_scale`: the factor on the rewards that training sees; evaluation sees
      them as they are.
    """

    config: TrainConfig
    network: NetworkOptions
    reward_scale: float

    def __check_init__(self):
        """Refuses a scale that rewards cannot be divided by again."""
        expect_range("reward_scale", self.reward_scale, _SMALLEST, _LARGEST)


def expect_policy(policy: str) -> Policy:
    """The policy, if there is one of this name.

    **Raises:**

    `ValueError` that names the others.
    """
    if policy in POLICIES:
        return policy
    raise ValueError(
        f"there is no policy {policy!r}{did_you_mean(policy, POLICIES)}; the policies "
        f"are {', '.join(POLICIES)}"
    )


def changed(settings: Settings, **changes: Any) -> Settings:
    """The settings with those of the changes that are not `None`."""
    chosen = {name: value for name, value in changes.items() if value is not None}
    return dataclasses.replace(cast(Any, settings), **chosen)
