"""Settings that were tried and measured, by environment.

The memory-less and the recurrent policies of an environment share sizes, settings and
budget, so that a difference between their learning curves is a difference between
the policies.
"""

from collections.abc import Mapping
from typing import Any

from ..algorithms.config import EvalConfig, LoggingLevel, PPOConfig, TrainConfig
from .options import changed, NetworkOptions, Preset


_PPO = PPOConfig(
    n_envs=64,
    rollout_length=64,
    total_steps=491_520,
    gae_lambda=0.95,
    discounting_factor=0.99,
    clip_range=0.2,
    learning_rate=1e-3,
    learning_rate_final_fraction=0.02,
    adam_epsilon=1e-5,
    n_epochs=4,
    n_minibatches=4,
    critic_loss_weight=0.5,
    gradient_clipping=0.5,
    logging_level=LoggingLevel.LOSSES | LoggingLevel.THROUGHPUT,
)

_DEFAULT = Preset(TrainConfig(ppo=_PPO), NetworkOptions(), reward_scale=1.0)


def _variant(
    base: Preset,
    *,
    reward_scale: float = 1.0,
    evaluation: EvalConfig | None = None,
    **options: Any,
) -> Preset:
    """A preset with other options, of PPO's or of the network's."""
    own = {name: x for name, x in options.items() if hasattr(base.network, name)}
    ppo = {name: x for name, x in options.items() if name not in own}
    config = changed(base.config, ppo=changed(base.config.ppo, **ppo), eval=evaluation)
    return Preset(config, changed(base.network, **own), reward_scale)


# Balancing for 500 steps is worth about 100 at a discount of 0.99: a critic learns
# that much faster as 10. A policy that always balances has advantages that are the
# critic's errors alone, which the floor leaves as small as they are.
_CARTPOLE = _variant(_DEFAULT, reward_scale=0.1, advantage_std_floor=0.2)

_PENDULUM = _variant(
    _DEFAULT,
    reward_scale=0.1,
    total_steps=778_240,
    discounting_factor=0.95,
    entropy_weight=1e-3,
)

_MEMORY_CHAIN = _variant(
    _DEFAULT,
    total_steps=102_400,
    rollout_length=32,
    critic_loss_weight=1.0,
    # An episode earns 1 or -1, so the mean of 64 would be off by 0.1 by chance.
    evaluation=EvalConfig(n_envs=1024),
)

_MINATAR = _variant(
    _DEFAULT,
    total_steps=1_024_000,
    learning_rate_final_fraction=0.1,
    hidden_size=128,
)

# Steps of a hundredth of a second: what an action leads to is seen after a hundred.
_CONTROL_SUITE = _variant(
    _DEFAULT,
    reward_scale=0.1,
    total_steps=1_228_800,
    discounting_factor=0.995,
    gae_lambda=0.99,
    learning_rate=3e-3,
    learning_rate_final_fraction=0.1,
    advantage_std_floor=0.02,
    entropy_weight=1e-3,
)

_INVERTED_PENDULUM = _variant(
    _DEFAULT,
    reward_scale=0.1,
    total_steps=204_800,
    learning_rate=3e-3,
    learning_rate_final_fraction=0.1,
    entropy_weight=1e-3,
)

PRESETS: Mapping[str, Preset] = {
    "cartpole": _CARTPOLE,
    "hidden-cartpole": _CARTPOLE,
    "pendulum": _PENDULUM,
    "gymnax:CartPole-v1": _CARTPOLE,
    "gymnax:Pendulum-v1": _PENDULUM,
    "gymnax:MemoryChain-bsuite": _MEMORY_CHAIN,
    "gymnax:Breakout-MinAtar": _MINATAR,
    "brax:inverted_pendulum": _INVERTED_PENDULUM,
    "playground:CartpoleBalance": _CONTROL_SUITE,
}
"""The environments whose settings were tried and measured."""

FAMILY_PRESETS: Mapping[str, Preset] = {
    "brax:": _CONTROL_SUITE,
    "playground:": _CONTROL_SUITE,
}
"""Where to begin in an environment whose settings were not."""


def preset(env_name: str) -> Preset:
    """The settings for an environment, the same for every policy.

    **Arguments:**

    - `env_name`: a name that `nnx_ppo_fn.envs.make` accepts. One without settings of
      its own gets those of its family, or the defaults.
    """
    family = env_name.partition(":")[0] + ":"
    return PRESETS.get(env_name) or FAMILY_PRESETS.get(family, _DEFAULT)
