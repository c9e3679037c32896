"""The laws of single steps: birth, reset, replay, freshness."""

from typing import Any

import jax.numpy as jnp
import jax.tree_util as jtu
import numpy as np
from numpy.typing import NDArray

from .._tree import is_key
from ..networks.types import StatefulModuleOutput
from ._compare import bits, Difference, difference, differing_bits, take_rows
from ._provenance_laws import used_key_leaves
from ._traces import carry_leaves, trace
from ._trial import Trial
from .violation import LawViolation


def birth(trial: Trial) -> None:
    """An environment's fresh carry comes from its own key."""
    for description, rows in trial.subsets.items():
        part = trial.module.initialize_state(trial.keys[rows])
        different = difference(take_rows(trial.born, rows), part)
        if different is not None:
            raise _violation(
                "birth",
                f"initialize_state gives {description} another carry than within the "
                f"batch: {different}",
                different,
                "initialize_state draws or splits one key for all environments, such "
                "as keys[0]. Use each environment's own: "
                "`jax.vmap(initialize_one)(keys)`",
                prefix="state",
                environment=int(rows[different.environment]),
            )


def reset(trial: Trial) -> None:
    """A reset forgets everything but keys, and gives what a fresh carry has."""
    module, evolved = trial.module, trial.evolved
    expected = module.reset_state(evolved)
    for description, rows in trial.subsets.items():
        part = module.reset_state(take_rows(evolved, rows))
        different = difference(take_rows(expected, rows), part)
        if different is not None:
            raise _violation(
                "reset",
                f"reset_state gives {description} another carry than within the "
                f"batch: {different}",
                different,
                "reset_state looks at other rows, or draws for the whole batch from "
                "one key",
                prefix="state",
                environment=int(rows[different.environment]),
            )
    for description, fill in (("NaN", True), ("huge numbers", False)):
        refilled = module.reset_state(_refill(evolved, with_nan=fill))
        different = differing_bits(expected, refilled)
        if different is not None:
            raise _violation(
                "reset",
                f"reset_state of a carry full of {description} differs from that of "
                f"an evolved carry: {different}",
                different,
                "reset_state keeps or computes with what it finds: a counter that is "
                "never reset, or `state * 0`, which keeps NaN. Build the carry anew, "
                "with jnp.zeros_like or as initialize_state does",
                prefix="state",
            )
    unlike = _unlike_fresh(trial, expected)
    if unlike is not None:
        raise _violation(
            "reset",
            f"reset_state gives another carry than initialize_state: {unlike}",
            unlike,
            "the first episode would start differently from all others. Let "
            "initialize_state and reset_state build the carry in one function",
            prefix="state",
        )


def replay(trial: Trial) -> None:
    """With unchanged parameters, recorded extras give back the recording."""
    for index, step in enumerate(trial.steps):
        different = difference(
            _without_extras(step.rollout), _without_extras(step.replayed)
        )
        if different is not None:
            raise _violation(
                "replay",
                f"step {index} replayed with its own extras differs from the rollout: "
                f"{different}",
                different,
                "with rollout_extras the module takes another path: it draws other "
                "numbers, or advances its carry or its keys differently. The carry "
                "must evolve in the replay as it did in the rollout, and only what is "
                "locked (the action taken) comes from the extras",
            )


def freshness(trial: Trial) -> None:
    """Used keys are replaced, held ones kept until a reset, and no two are equal."""
    states = {
        "a fresh carry": trial.born,
        "a carry after a step": trial.evolved,
        "a carry after a reset": trial.module.reset_state(trial.evolved),
    }
    for description, state in states.items():
        _no_shared_keys(description, state)
    traced = trace(
        lambda state, x: trial.module(state, x), trial.evolved, trial.steps[0].x
    )
    used = used_key_leaves(trial.evolved, traced)
    for step in trial.steps:
        reset_rows = np.asarray(step.is_first)
        after = carry_leaves(step.rollout.next_state)
        for old, new in zip(carry_leaves(step.before), after, strict=True):
            if not is_key(old.leaf):
                continue
            kept = _equal_rows(old.leaf, new.leaf)
            if old.held:
                _expect_rows(old.path, kept | reset_rows, *_HELD_CHANGES)
                _expect_rows(old.path, ~kept | ~reset_rows, *_HELD_STAYS)
            elif old.path in used:
                _expect_rows(old.path, ~kept | reset_rows, *_USED_STAYS)


_HELD_CHANGES = (
    "a held key changes without a reset",
    "Held marks a key that lasts until the next reset. Pass it on as it is, and "
    "replace it in reset_state only",
)
_HELD_STAYS = (
    "a held key is the same after a reset",
    "reset_state passes the held key on, so every episode gets the same numbers. "
    "Take a new one from a chain: `EpisodeKeys.of(state.chain)`",
)
_USED_STAYS = (
    "a step uses a key and leaves it in the carry as it was",
    "the chain of keys advances in some steps only, or for some environments. Let it "
    "advance in every step: `next_state, draw = advance_keys(state)`. A key that is "
    "meant to last until the next reset belongs in Held(key)",
)


def _expect_rows(path: str, right: NDArray[Any], problem: str, cause: str) -> None:
    if not np.all(right):
        raise LawViolation(
            "freshness",
            problem,
            leaf=path,
            environment=int(np.argmin(right)),
            cause=cause,
        )


def _no_shared_keys(description: str, state: Any) -> None:
    owners: dict[bytes, tuple[int, str]] = {}
    for leaf in carry_leaves(state):
        if not is_key(leaf.leaf):
            continue
        for environment, row in enumerate(bits(leaf.leaf)):
            for key in row.reshape(-1, row.shape[-1]):
                owner, path = owners.setdefault(key.tobytes(), (environment, leaf.path))
                if owner != environment:
                    raise LawViolation(
                        "freshness",
                        f"in {description}, environments {owner} and {environment} "
                        f"hold the same key ({path} and {leaf.path})",
                        leaf=leaf.path,
                        environment=environment,
                        cause="one key was broadcast to all environments, so all draw "
                        "the same numbers. Derive each environment's key from its "
                        "own: `jax.vmap(jr.split)(keys)` or `derive(keys, name)`",
                    )


def _equal_rows(old: Any, new: Any) -> NDArray[Any]:
    equal = bits(old) == bits(new)
    return np.all(equal, axis=tuple(range(1, equal.ndim)))


def _refill(state: Any, *, with_nan: bool) -> Any:
    """The carry with every number replaced and every key kept."""

    def refill(leaf: Any) -> Any:
        if is_key(leaf):
            return leaf
        if jnp.issubdtype(leaf.dtype, jnp.inexact):
            return jnp.full_like(
                leaf, jnp.nan if with_nan else jnp.finfo(leaf.dtype).max
            )
        if leaf.dtype == jnp.bool_:
            return jnp.full_like(leaf, with_nan)
        return jnp.full_like(leaf, jnp.iinfo(leaf.dtype).max)

    return jtu.tree_map(refill, state)


def _unlike_fresh(trial: Trial, reset_carry: Any) -> Difference | None:
    """Where a reset carry is not a fresh one, in leaves that no key decides."""

    def comparable(fresh: Any, other: Any, leaf: Any) -> Any:
        decided_by_key = is_key(fresh) or np.any(bits(fresh) != bits(other))
        return fresh if decided_by_key else leaf

    compared = jtu.tree_map(comparable, trial.born, trial.other_born, reset_carry)
    return differing_bits(trial.born, compared)


def _without_extras(
    result: StatefulModuleOutput[Any, Any],
) -> StatefulModuleOutput[Any, Any]:
    return StatefulModuleOutput(
        result.next_state, result.output, result.regularization_loss, result.metrics
    )


def _violation(
    law: str,
    problem: str,
    found: Difference,
    cause: str,
    *,
    prefix: str = "",
    environment: int | None = None,
) -> LawViolation:
    return LawViolation(
        law,
        problem,
        cause=cause,
        leaf=prefix + found.leaf,
        environment=found.environment if environment is None else environment,
        size=found.size,
    )
