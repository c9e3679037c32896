"""When the host has something to do between two compiled calls."""

from collections.abc import Iterable

from .config import TrainConfig


def iterations_to_next(
    steps: int, intervals: Iterable[int], config: TrainConfig
) -> int:
    """How many iterations the next compiled call may run.

    **Arguments:**

    - `steps`: environment steps so far.
    - `intervals`: environment steps between events of each kind.
    - `config`: says the step budget, and the longest call.
    """
    next_events = [(steps // every + 1) * every for every in intervals]
    missing = min([config.ppo.total_steps, *next_events]) - steps
    return min(
        -(-missing // config.ppo.steps_per_iteration), config.iterations_per_call
    )


def is_due(every_steps: int, *, before: int, steps: int, config: TrainConfig) -> bool:
    """Whether a compiled call has passed an event, or the end.

    **Arguments:**

    - `every_steps`: environment steps between the events.
    - `before`, `steps`: environment steps before and after the call.
    - `config`: says the step budget.
    """
    passed = steps // every_steps > before // every_steps
    return passed or steps >= config.ppo.total_steps
