"""What may depend on what: resets, replays and extras, read off a module's jaxprs.

The numbers of `check_module` test the same laws more sharply. What is found here is
found before anything compiles; above all it finds those modules whose
replay is perfect and whose gradient is wrong all the same.
"""

import re
from collections.abc import Iterator
from typing import Any

import jax.tree_util as jtu

from .._tree import is_key
from ..networks.types import PPONetworkOutput, SampledAction
from ._causes import IGNORED_ACTION, RECORDED_LIKELIHOOD, SMUGGLED_OUTPUT
from ._dependence import computation, used_leaves
from ._traces import Trace
from .violation import LawViolation


def reset_violations(state: Any, reset: Trace) -> Iterator[LawViolation]:
    """A reset looks at the keys of the old carry and at nothing else.

    **Arguments:**

    - `state`: the carry that `reset` was traced with.
    - `reset`: the trace of `reset_state`.
    """
    for path, _ in jtu.tree_leaves_with_path(reset.result):
        place = jtu.keystr(path)
        for source, leaf in used_leaves(reset, (state,), place.__eq__):
            if not is_key(leaf):
                yield LawViolation(
                    "reset",
                    f"the reset carry depends on the old carry's state"
                    f"{source.removeprefix('[0]')}",
                    leaf=f"state{place}",
                    cause="something of the last episode lives on: `state * 0`, which "
                    "keeps NaN, or a counter that is never reset. Build the carry from "
                    "shapes and keys alone, for example with jnp.zeros_like",
                )


def replay_violations(
    arguments: tuple[Any, Any, Any], rollout: Trace, replay: Trace
) -> Iterator[LawViolation]:
    """A replay takes the action from the extras, and nothing else.

    **Arguments:**

    - `arguments`: `(state, x, rollout_extras)` that the steps were traced with.
    - `rollout`, `replay`: the traces of a step without extras and with them.
    """
    yield from _same_chain(rollout, replay)
    for path, _ in jtu.tree_leaves_with_path(replay.result):
        place = jtu.keystr(path)
        if place.startswith((".metrics", ".rollout_extras")):
            continue
        sampled = _sampled_part(replay.result, place)
        used = [source for source, _ in used_leaves(replay, arguments, place.__eq__)]
        reads_extras = any(source.startswith("[2]") for source in used)
        if sampled == "":
            if reads_extras:
                yield LawViolation(
                    "re-weighting",
                    "in the replay, this depends on the recorded extras",
                    leaf=place,
                    cause=SMUGGLED_OUTPUT,
                )
        elif sampled == "action":
            if not reads_extras:
                yield LawViolation(
                    "re-weighting",
                    "in the replay, the sampler's action does not depend on its "
                    "recorded extras",
                    leaf=place,
                    cause=IGNORED_ACTION,
                )
        else:
            before = used_leaves(rollout, arguments[:2], place.__eq__)
            lost = {s for s, _ in before if s.startswith("[1]")} - set(used)
            if lost:
                yield LawViolation(
                    "re-weighting",
                    "in the replay, the log-likelihood does not depend on the input",
                    leaf=place,
                    cause=RECORDED_LIKELIHOOD,
                )


def _same_chain(rollout: Trace, replay: Trace) -> Iterator[LawViolation]:
    """Keys move on in the replay by the computation of the rollout."""
    for path, leaf in jtu.tree_leaves_with_path(rollout.result.next_state):
        place = f".next_state{jtu.keystr(path)}"
        if is_key(leaf) and not _same_text(
            computation(rollout, place.__eq__), computation(replay, place.__eq__)
        ):
            yield LawViolation(
                "replay",
                "the replay advances a key otherwise than the rollout",
                leaf=place,
                cause="the carry must evolve in the replay as it did in the rollout: "
                "advance the key whether or not it is drawn from",
            )


def _same_text(left: str, right: str) -> bool:
    address = re.compile(r"0x[0-9a-f]+")
    return address.sub("", left) == address.sub("", right)


def _sampled_part(result: Any, place: str) -> str:
    """`"action"`, `"likelihood"`, or `""` for what no sampler decides."""
    names: dict[type, tuple[str, str]] = {
        SampledAction: ("action", "log_likelihood"),
        PPONetworkOutput: ("actions", "loglikelihoods"),
    }

    def is_sampled(node: Any) -> bool:
        return isinstance(node, SampledAction | PPONetworkOutput)

    for path, node in jtu.tree_leaves_with_path(result, is_leaf=is_sampled):
        here = jtu.keystr(path)
        if is_sampled(node) and place.startswith(here):
            action, likelihood = names[type(node)]
            rest = place.removeprefix(here)
            if rest.startswith(f".{action}"):
                return "action"
            if rest.startswith(f".{likelihood}"):
                return "likelihood"
    return ""
