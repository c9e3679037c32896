"""Times rollouts that begin episodes anew in several ways."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax.random as jr

from nnx_ppo_fn import initial_rollout_state, unroll_env

from .episodes import Episodes, LENGTHS
from .networks import NETWORKS
from .programs import compile_program
from .restart_ways import restarting, Way, WAYS
from .stock import Stocking
from .timing import feeding_back, Spread, take_turns, Timed


ENVIRONMENTS = 256
STEPS = 256
"""Of one rollout; long, so that what is paid seldom is paid within."""


class Restarts(NamedTuple):
    """Rollouts of the MLP in which episodes begin anew in one way.

    - `reset`: `"cheap"` or `"costly"`.
    - `ends`: how often episodes end, one of `LENGTHS`.
    - `way`: one of `WAYS`.
    - `gives_up`: what one has to do without.
    - `environments`: side by side.
    - `seconds_per_step`: of all environments.
    - `ratio`: the time as a part of the library's in the same turn.
    """

    reset: str
    ends: str
    way: str
    gives_up: str
    environments: int
    seconds_per_step: Spread
    ratio: Spread


def measure_restarts(
    *,
    repeats: int,
    seconds: float,
    environments: int = ENVIRONMENTS,
    steps: int = STEPS,
    tell: Callable[[str], None] = lambda _: None,
) -> list[Restarts]:
    """Times every way, for cheap and for costly resets, however often episodes end.

    **Arguments:**

    - `repeats`, `seconds`: as for `take_turns`; all ways take turns.
    - `environments`, `steps`: of one rollout.
    - `tell`: is given a line whenever something begins.
    """
    measured: list[Restarts] = []
    for costly in (False, True):
        for ends in LENGTHS:
            reset = "costly" if costly else "cheap"
            tell(f"restarts: a {reset} reset, episodes end {ends}")
            env = Episodes(ends, costly)
            timings = take_turns(
                {
                    name: roll_out(env, way, environments, steps)
                    for name, way in WAYS.items()
                },
                repeats=repeats,
                seconds=seconds,
            )
            own = timings["library"].calls
            for name, way in WAYS.items():
                calls = timings[name].calls
                per_step = [call / steps for call in calls]
                ratios = [a / b for a, b in zip(calls, own, strict=True)]
                measured.append(
                    Restarts(
                        reset=reset,
                        ends=ends,
                        way=name,
                        gives_up=way.gives_up,
                        environments=environments,
                        seconds_per_step=Spread.of(per_step),
                        ratio=Spread.of(ratios),
                    )
                )
    return measured


def roll_out(env: Episodes, way: Way, environments: int, steps: int) -> Timed:
    """Compiles rollouts, of which each goes on where the last one ended."""
    network = NETWORKS["mlp"](jr.key(0))
    acting: Any = Stocking(env) if way.stocks else env
    state = initial_rollout_state(acting, network, jr.split(jr.key(1), environments))
    with restarting(way):
        compiled = compile_program(
            lambda state: unroll_env(acting, network, state, steps), state
        )
    return feeding_back(compiled.run, state)
