"""Environments around environments."""

from .action_scaling_wrapper import ActionScalingWrapper as ActionScalingWrapper
from .episode_wrapper import EpisodeWrapper as EpisodeWrapper
from .reward_scaling_wrapper import RewardScalingWrapper as RewardScalingWrapper
