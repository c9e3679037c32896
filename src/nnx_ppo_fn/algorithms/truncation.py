"""What a time limit can mean in an environment that starts itself anew."""

import dataclasses
import warnings
from typing import Any

from ..envs import hides_final_observation
from ..envs.types import warn_of_time_out
from .config import PPOConfig


def with_possible_truncation(config: PPOConfig, env_state: Any) -> PPOConfig:
    """The settings, with `"mask"` for a `"bootstrap"` that is not possible.

    An environment that starts itself anew shows the next episode's first observation
    where the last one of the episode before should be. If it does not keep the latter
    elsewhere, a truncated step has no value to go on with, and is left out.

    **Arguments:**

    - `config`: the settings.
    - `env_state`: a state of the environment, of which only the names in `info` matter.
    """
    if config.truncation == "bootstrap" and hides_final_observation(env_state):
        return dataclasses.replace(config, truncation="mask")
    return config


def warn_if_impossible(config: PPOConfig, env_state: Any) -> None:
    """Says that `with_possible_truncation` is going to change the settings, or that a
    time limit may be none.

    Arguments are the same.
    """
    if config.truncation == "bootstrap":
        warn_of_time_out(env_state)
    if with_possible_truncation(config, env_state).truncation != config.truncation:
        warnings.warn(
            "the environment starts itself anew and does not show the observation that "
            "an episode ends with, so truncated steps cannot be bootstrapped and are "
            'left out, as with truncation="mask". Pass the environment without its '
            "auto-reset wrapper, inside EpisodeWrapper, or put the final observation "
            'into info["final_observation"]',
            stacklevel=4,
        )
