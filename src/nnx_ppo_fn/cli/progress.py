"""How far a run is: the latest numbers, the speed and the time left, in words."""

import math
import time
from typing import final

from ..algorithms.types import Metrics


EVALUATION = "eval/episode_reward/mean"
EVALUATION_SPREAD = "eval/episode_reward/std"
TRAINING_RETURN = "episode/return/mean"
CRITIC_LOSS = "losses/critic/mean"
LOG_RATIO = "replay/log_ratio_max"

_SHOWN = (
    ("evaluation return", EVALUATION),
    ("training return", TRAINING_RETURN),
    ("actor loss", "losses/actor/mean"),
    ("critic loss", CRITIC_LOSS),
    ("replay check", LOG_RATIO),
)


@final
class Progress:
    """Keeps the latest value of every metric.

    **Arguments:**

    - `total_steps`: environment steps of the whole run.
    - `replay_tolerance`: how far a replay with unchanged weights may be off.
    """

    def __init__(self, total_steps: int, replay_tolerance: float):
        self.total_steps = total_steps
        self.replay_tolerance = replay_tolerance
        self.step = 0
        self._latest: dict[str, float] = {}
        self._first: tuple[float, int] | None = None
        self._steps_per_second = math.nan

    def update(self, metrics: Metrics, step: int) -> None:
        """Notes an iteration.

        **Arguments:**

        - `metrics`: numbers by name. A return is NaN where no episode ended; the one
          before it then stays.
        - `step`: environment steps so far.
        """
        self.step = step
        finite = {name: x for name, x in metrics.items() if math.isfinite(x)}
        self._latest.update(finite)
        # Compilation is over by the first update, and does not count.
        now = time.perf_counter()
        start, first_step = self._first = self._first or (now, step)
        if now > start and step > first_step:
            self._steps_per_second = (step - first_step) / (now - start)

    @property
    def fraction(self) -> str:
        """Such as `4,096 of 491,520 steps`."""
        total = f"{self.total_steps:,}"
        return f"{self.step:>{len(total)},} of {total} steps"

    @property
    def pace(self) -> str:
        """Such as `51,200 steps/s, 8 s left`; nothing before the first iteration."""
        if math.isnan(self._steps_per_second):
            return ""
        left = max(self.total_steps - self.step, 0) / self._steps_per_second
        return f"{self._steps_per_second:,.0f} steps/s, {duration(left)} left"

    @property
    def numbers(self) -> dict[str, str]:
        """The metrics worth watching, by what a person calls them."""
        shown = {
            name: number(self._latest[key])
            for name, key in _SHOWN
            if key in self._latest
        }
        if LOG_RATIO in self._latest:
            shown["replay check"] += f" (stops above {self.replay_tolerance:.2g})"
        return shown


def number(value: int | float) -> str:
    """A metric in few characters, of which about three digits matter."""
    size = abs(value)
    if size and not 1e-3 <= size < 1e6:
        return f"{value:.1e}"
    if size >= 10 or not size:
        return f"{value:,.1f}"
    return f"{value:.2f}" if size >= 1 else f"{value:.3f}"


def duration(seconds: float) -> str:
    """Seconds as `8 s`, `3 min 20 s` or `2 h 05 min`."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    if minutes < 60:
        return f"{minutes} min {rest:02} s"
    return f"{minutes // 60} h {minutes % 60:02} min"
