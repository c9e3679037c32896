"""Whether all libraries learn the same, with the same settings and as many updates."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import NamedTuple

from nnx_ppo_fn import PPOConfig

from . import ours
from .peers.borders import Learner
from .playing import best, EPISODES, mean_return, still
from .settings import EPOCHS, MINIBATCHES, Settings


def training(iterations: int) -> PPOConfig:
    """The settings of every library's training.

    Nothing that an action does lasts, and what comes later is noise: at a discount of
    0.99 the same return would take many times as long. Most lessons are in the numbers
    that a start brings, for which there are many environments and short rollouts. Only
    this library has a floor under the deviation that advantages are divided by; it is
    set to what the others add to theirs.

    **Arguments:**

    - `iterations`: rollouts, each with all its updates.
    """
    environments, rollout_length = 128, 8
    return PPOConfig(
        n_envs=environments,
        rollout_length=rollout_length,
        total_steps=iterations * environments * rollout_length,
        n_epochs=EPOCHS,
        n_minibatches=MINIBATCHES,
        learning_rate=3e-4,
        discounting_factor=0.9,
        advantage_std_floor=1e-8,
    )


class Learned(NamedTuple):
    """What the policies of one library earn, by seed.

    - `library`: its name.
    - `untrained`: before the first step.
    - `trained`: after the last one.
    """

    library: str
    untrained: tuple[float, ...]
    trained: tuple[float, ...]

    @property
    def mean(self) -> float:
        """The mean over the seeds."""
        return sum(self.trained) / len(self.trained)

    @property
    def spread(self) -> float:
        """From the worst seed to the best one."""
        return max(self.trained) - min(self.trained)

    def agrees_with(self, other: "Learned") -> bool:
        """Whether the means are no further apart than the seeds of one of the two."""
        return abs(self.mean - other.mean) <= max(self.spread, other.spread)


class Returns(NamedTuple):
    """Mean returns of whole episodes, all from the same starts.

    - `seeds`: one training each.
    - `steps`, `updates`: environment steps and gradient steps of each training.
    - `episodes`: that each policy plays.
    - `best`, `still`: what the best action earns, and what no action does.
    - `libraries`: this one first.
    """

    seeds: tuple[int, ...]
    steps: int
    updates: int
    episodes: int
    best: float
    still: float
    libraries: list[Learned]


def measure_returns(
    settings: Settings, peers: Mapping[str, Learner], tell: Callable[[str], None]
) -> Returns:
    """Trains with every library and plays what it has learned.

    **Arguments:**

    - `settings`: how long, and from which seeds.
    - `peers`: by name; this library is added.
    - `tell`: is given a line whenever a training begins.
    """
    config = training(settings.return_iterations)
    before = dataclasses.replace(config, total_steps=0)

    def learned(name: str, learner: Learner) -> Learned:
        untrained: list[float] = []
        trained: list[float] = []
        for seed in settings.return_seeds:
            tell(f"{name} learns, seed {seed}")
            untrained.append(mean_return(learner.learn(before, seed)))
            trained.append(mean_return(learner.learn(config, seed)))
        return Learned(name, tuple(untrained), tuple(trained))

    learners: dict[str, Learner] = {ours.NAME: ours, **peers}
    return Returns(
        seeds=settings.return_seeds,
        steps=config.total_steps,
        updates=settings.return_iterations * config.n_epochs * config.n_minibatches,
        episodes=EPISODES,
        best=mean_return(best),
        still=mean_return(still),
        libraries=[learned(name, learner) for name, learner in learners.items()],
    )
