"""Environments around environments."""

from .episode_wrapper import EpisodeWrapper as EpisodeWrapper
from .reward_scaling_wrapper import RewardScalingWrapper as RewardScalingWrapper
