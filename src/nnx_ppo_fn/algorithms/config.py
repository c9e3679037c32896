"""The settings of a training run.

Counts and switches are static; coefficients and the seed are leaves. `jax.jit` traces
a Python number as a weak scalar, so a changed coefficient does not compile anew, and
a sweep puts an array in its place and maps over it.
"""

import math
from typing import Any, final, Literal, TypeAlias

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array

from .._expect import expect_choice, expect_count, expect_flags, expect_range
from .types import (
    LoggingLevel as LoggingLevel,
    TrainResult as TrainResult,
    VideoData as VideoData,
)


Scalar: TypeAlias = int | float | Array
"""A number, or an array of numbers to map over."""

# `jax.random.key` looks at 32 bits.
_LARGEST_SEED = 2.0**32 - 1

# What a counter can be increased by.
_MOST_STEPS = 2**32


@final
class PPOConfig(eqx.Module):
    """How PPO collects and learns.

    - `n_envs`: environments that run side by side.
    - `rollout_length`: steps of each environment per iteration.
    - `total_steps`: environment steps of the whole training, over all environments.
    - `gae_lambda`: generalised advantage estimation's lambda, 0 to 1.
    - `discounting_factor`: reward discount per step, 0 to 1.
    - `clip_range`: how far from 1 a likelihood ratio counts.
    - `learning_rate`: of Adam, at the start.
    - `learning_rate_final_fraction`: what is left of it after `total_steps`; it falls
      linearly in environment steps.
    - `adam_epsilon`: Adam's epsilon.
    - `normalize_advantages`: whether each minibatch's advantages are standardised.
    - `advantage_std_floor`: the least standard deviation to divide by. Without a floor
      a perfect policy's advantages, all noise of the critic, are blown up to size 1.
    - `combine_advantages`: whether the advantages of several rewards are summed.
    - `n_epochs`: passes over a rollout.
    - `n_minibatches`: parts of each pass, each of whole environments.
    - `n_shards`: groups of neighbouring environments, begun anew, shuffled and replayed
      each by itself. On a mesh of as many devices, or of a divisor, no experience is
      moved from one device to another; see `on_mesh`.
    - `critic_loss_weight`: weight of half the squared error of the values.
    - `gradient_clipping`: largest norm of a gradient, or `None`.
    - `weight_decay`: decoupled decay of the trainable weights, or `None`.
    - `truncation`: what a time limit means. `"bootstrap"` continues with the critic's
      value of the final observation; `"mask"` leaves the step out of loss and
      statistics (`update_statistics` sees NaN in its place); `"nnx_ppo"` gives it
      advantage 0, as nnx-ppo does.
    - `advantages_from`: whose values the advantages use: the `"replay"`'s, fresh in
      every minibatch, or the `"rollout"`'s.
    - `replay_chunk_length`: how many steps of a replay pass through all layers before
      the next ones do, or `None` for a whole rollout. It changes speed and memory.
    - `replay_rematerialize`: whether a gradient recomputes a chunk's activations
      instead of keeping those of all chunks: less memory, more work. It needs a
      `replay_chunk_length`.
    - `replay_tolerance`: the largest relative error of a log-likelihood that a replay
      with unchanged weights may show; training stops above it. `None` chooses by the
      precision of the network's parameters and of matrix products.
    - `logging_level`: which metrics are computed.
    - `logging_percentiles`: percentiles that sum up distributions, such as
      `(0, 50, 100)`, or `None` for mean and deviation.
    """

    n_envs: int = eqx.field(static=True, default=256)
    rollout_length: int = eqx.field(static=True, default=20)
    total_steps: int = eqx.field(static=True, default=512_000)
    gae_lambda: Scalar = 0.95
    discounting_factor: Scalar = 0.99
    clip_range: Scalar = 0.2
    learning_rate: Scalar = 1e-4
    learning_rate_final_fraction: Scalar = 1.0
    adam_epsilon: Scalar = 1e-8
    normalize_advantages: bool = eqx.field(static=True, default=True)
    advantage_std_floor: Scalar = 1e-3
    combine_advantages: bool = eqx.field(static=True, default=False)
    n_epochs: int = eqx.field(static=True, default=4)
    n_minibatches: int = eqx.field(static=True, default=4)
    n_shards: int = eqx.field(static=True, default=1)
    critic_loss_weight: Scalar = 1.0
    gradient_clipping: Scalar | None = None
    weight_decay: Scalar | None = None
    truncation: Literal["bootstrap", "mask", "nnx_ppo"] = eqx.field(
        static=True, default="bootstrap"
    )
    advantages_from: Literal["replay", "rollout"] = eqx.field(
        static=True, default="replay"
    )
    replay_chunk_length: int | None = eqx.field(static=True, default=None)
    replay_rematerialize: bool = eqx.field(static=True, default=False)
    replay_tolerance: Scalar | None = None
    logging_level: LoggingLevel = eqx.field(static=True, default=LoggingLevel.LOSSES)
    logging_percentiles: tuple[int, ...] | None = eqx.field(static=True, default=None)

    def __check_init__(self):
        """Refuses settings that cannot train."""
        counts = ("n_envs", "rollout_length", "n_epochs", "n_minibatches", "n_shards")
        for name in counts:
            expect_count(name, getattr(self, name), least=1)
        expect_count("total_steps", self.total_steps, least=0)
        expect_flags(
            normalize_advantages=self.normalize_advantages,
            combine_advantages=self.combine_advantages,
            replay_rematerialize=self.replay_rematerialize,
        )
        if self.replay_chunk_length is not None:
            expect_count("replay_chunk_length", self.replay_chunk_length, least=1)
        elif self.replay_rematerialize:
            raise ValueError(
                "replay_rematerialize=True saves memory between chunks of time, of "
                "which there are none; set replay_chunk_length as well"
            )
        if self.steps_per_iteration >= _MOST_STEPS:
            raise ValueError(
                f"n_envs={self.n_envs} times rollout_length={self.rollout_length} must "
                f"be less than {_MOST_STEPS}"
            )
        if self.n_envs % self.n_minibatches:
            below = self.n_envs - self.n_envs % self.n_minibatches
            above = below + self.n_minibatches
            nearest = f"{below} or {above}" if below else f"{above}"
            raise ValueError(
                f"n_envs={self.n_envs} cannot be divided into "
                f"n_minibatches={self.n_minibatches} equal minibatches of whole "
                f"environments; try n_envs={nearest}"
            )
        if (self.n_envs // self.n_minibatches) % self.n_shards:
            raise ValueError(
                f"n_envs={self.n_envs} divided into n_minibatches="
                f"{self.n_minibatches} is a minibatch of "
                f"{self.n_envs // self.n_minibatches} environments, which cannot take "
                f"equally many of n_shards={self.n_shards} groups; set n_envs to a "
                f"multiple of {self.n_minibatches * self.n_shards}"
            )
        if self.normalize_advantages and self.steps_per_iteration == self.n_minibatches:
            raise ValueError(
                "a minibatch of a single step has a normalised advantage of 0 and "
                "teaches nothing; set normalize_advantages=False, or collect more steps"
            )
        expect_range("gae_lambda", self.gae_lambda, 0.0, 1.0)
        expect_range("discounting_factor", self.discounting_factor, 0.0, 1.0)
        for name in (
            "clip_range",
            "learning_rate",
            "learning_rate_final_fraction",
            "adam_epsilon",
            "advantage_std_floor",
            "critic_loss_weight",
        ):
            expect_range(name, getattr(self, name), 0.0, math.inf)
        for name in ("gradient_clipping", "weight_decay", "replay_tolerance"):
            if getattr(self, name) is not None:
                expect_range(name, getattr(self, name), 0.0, math.inf)
        if not isinstance(self.logging_level, LoggingLevel):
            raise TypeError(
                "logging_level must be a LoggingLevel, got "
                f"{self.logging_level!r}; for example LoggingLevel.LOSSES"
            )
        expect_choice("truncation", self.truncation, ("bootstrap", "mask", "nnx_ppo"))
        expect_choice("advantages_from", self.advantages_from, ("replay", "rollout"))

    @property
    def steps_per_iteration(self) -> int:
        """Environment steps, over all environments, that one `ppo_step` takes."""
        return self.n_envs * self.rollout_length


@final
class EvalConfig(eqx.Module):
    """When and how long to evaluate.

    - `enabled`: whether to evaluate at all.
    - `every_steps`: environment steps between evaluations.
    - `n_envs`: episodes per evaluation.
    - `max_episode_length`: steps after which an episode is left.
    - `deterministic`: whether the network runs in inference mode.
    """

    enabled: bool = eqx.field(static=True, default=True)
    every_steps: int = eqx.field(static=True, default=50_000)
    n_envs: int = eqx.field(static=True, default=64)
    max_episode_length: int = eqx.field(static=True, default=1000)
    deterministic: bool = eqx.field(static=True, default=True)

    def __check_init__(self):
        """Refuses settings that evaluate nothing."""
        for name in ("every_steps", "n_envs", "max_episode_length"):
            expect_count(f"eval.{name}", getattr(self, name), least=1)
        for name in ("enabled", "deterministic"):
            expect_flags(**{f"eval.{name}": getattr(self, name)})


@final
class VideoConfig(eqx.Module):
    """When and how large to record an episode for `video_fn`.

    - `enabled`: whether to record at all.
    - `every_steps`: environment steps between recordings.
    - `episode_length`: steps after which the recorded episode is left.
    - `height`: of a picture, in pixels.
    - `width`: of a picture, in pixels.
    """

    enabled: bool = eqx.field(static=True, default=False)
    every_steps: int = eqx.field(static=True, default=200_000)
    episode_length: int = eqx.field(static=True, default=1000)
    height: int = eqx.field(static=True, default=480)
    width: int = eqx.field(static=True, default=640)

    def __check_init__(self):
        """Refuses settings that show nothing."""
        for name in ("every_steps", "episode_length", "height", "width"):
            expect_count(f"video.{name}", getattr(self, name), least=1)
        expect_flags(**{"video.enabled": self.enabled})


@final
class TrainConfig(eqx.Module):
    """A whole training run.

    - `ppo`: how to learn.
    - `eval`: when and how long to evaluate.
    - `video`: when to record an episode.
    - `seed`: of everything random; a key given to `train_ppo` wins.
    - `checkpoint_every_steps`: environment steps between calls of `checkpoint_fn`.
    - `iterations_per_call`: the most iterations that run in one compiled call before
      the host sees their metrics.
    """

    ppo: PPOConfig = eqx.field(default_factory=PPOConfig)
    eval: EvalConfig = eqx.field(default_factory=EvalConfig)
    video: VideoConfig = eqx.field(default_factory=VideoConfig)
    seed: Scalar = 17
    checkpoint_every_steps: int = eqx.field(static=True, default=500_000)
    iterations_per_call: int = eqx.field(static=True, default=16)

    def __check_init__(self):
        """Refuses intervals of nothing, and what is no seed."""
        expect_seed(self.seed)
        expect_count("checkpoint_every_steps", self.checkpoint_every_steps, least=1)
        expect_count("iterations_per_call", self.iterations_per_call, least=1)


def expect_config(config: Any) -> None:
    """Raises `TypeError` unless `config` is a `TrainConfig`."""
    if isinstance(config, PPOConfig):
        raise TypeError("expected a TrainConfig; write TrainConfig(ppo=PPOConfig(...))")
    if not isinstance(config, TrainConfig):
        raise TypeError(f"expected a TrainConfig, got {type(config).__name__}")


def expect_seed(seed: Any) -> None:
    """Raises unless `seed` is an integer that no other is the same seed as.

    An array passes, as in `expect_range`.
    """
    if not isinstance(seed, jax.Array) and not isinstance(seed, np.integer):
        expect_count("seed", seed, least=0)
    expect_range("seed", seed, 0.0, _LARGEST_SEED)
