"""What can be told of the law of statistics without running anything."""

from collections.abc import Iterator
from typing import Any

import equinox as eqx
import jax
import jax.tree_util as jtu

from ..networks._routing import Name, named, Parent
from ..networks.types import AnyModule, StatefulModule
from ._dependence import used_leaves
from ._localise import record_inputs
from ._traces import signature, Trace, trace
from .violation import LawViolation


_LENGTH = 3


def statistics_violations(
    module: AnyModule, state: Any, x: Any, rollout: Trace, replay: Trace | None
) -> Iterator[LawViolation]:
    """Statistics keep their shape, extras are read, and samples come as they are.

    **Arguments:**

    - `module`: the module.
    - `state`, `x`: that the steps were traced with.
    - `rollout`, `replay`: the traces of a step without extras and with them.
    """
    if _keeps_no_statistics(module) and replay is None:
        return
    extras = rollout.result.rollout_extras
    timed = jtu.tree_map(_over_time, extras)
    found = structure_violations(module, timed)
    yield from found
    if replay is None or found:
        return
    yield from _unread_extras(module, (state, x, extras), timed, replay)
    yield from _standardised_samples(module, state, x, timed)


def structure_violations(module: AnyModule, extras: Any) -> list[LawViolation]:
    """An update gives a module of the same structure, shapes and dtypes.

    **Arguments:**

    - `module`: the module.
    - `extras`: what it recorded, leaves `[T, B, ...]`.
    """
    updated = eqx.filter_eval_shape(module.update_statistics, extras)
    cause = (
        "update_statistics builds another module. Replace the statistics alone, with "
        "equinox.tree_at, by arrays of the same shapes and dtypes"
    )
    if jtu.tree_structure(module) != jtu.tree_structure(updated):
        return [
            LawViolation(
                "statistics",
                f"update_statistics changes the module's structure, from "
                f"{jtu.tree_structure(module)} to {jtu.tree_structure(updated)}",
                cause=cause,
            )
        ]
    return [
        LawViolation(
            "statistics",
            f"update_statistics turns {signature(old)} into {signature(new)}",
            leaf=jtu.keystr(path),
            cause=cause,
        )
        for (path, old), new in zip(
            jtu.tree_leaves_with_path(module), jtu.tree_leaves(updated), strict=True
        )
        if eqx.is_array(old) and (old.shape, old.dtype) != (new.shape, new.dtype)
    ]


def _unread_extras(
    module: AnyModule, arguments: tuple[Any, Any, Any], timed: Any, replay: Trace
) -> Iterator[LawViolation]:
    def update(extras: Any) -> Any:
        return eqx.filter(module.update_statistics(extras), eqx.is_array)

    def computed(place: str) -> bool:
        return not place.startswith((".metrics", ".rollout_extras"))

    read = {
        source.removeprefix("[2]")
        for source, _ in used_leaves(replay, arguments, computed)
        if source.startswith("[2]")
    }
    read |= {
        source.removeprefix("[0]")
        for source, _ in used_leaves(trace(update, timed), (timed,))
    }
    for path, _ in jtu.tree_leaves_with_path(timed):
        if jtu.keystr(path) not in read:
            yield LawViolation(
                "statistics",
                "neither the replay's output nor update_statistics reads these extras",
                leaf=f".rollout_extras{jtu.keystr(path)}",
                cause="update_statistics is missing or returns self, so the "
                "statistics never move; or the module records what nobody needs. "
                "Write update_statistics, or return no extras",
            )


def _standardised_samples(
    module: AnyModule, state: Any, x: Any, timed: Any
) -> Iterator[LawViolation]:
    """Samples that the statistics themselves have shaped say nothing of the input.

    Statistics of another module may have shaped them, so every innermost module is
    looked at by itself.
    """
    if _keeps_no_statistics(module):
        return
    if isinstance(module, Parent):
        if all(map(_keeps_no_statistics, _innermost(module))):
            return
        received: dict[Name, Any] = {}
        jax.eval_shape(
            lambda state, x: record_inputs(module, state, x, received), state, x
        )
        children = named(module.children())
        carries = module.carries_of_children(state)
        for name, child_x in received.items():
            yield from _standardised_samples(
                children[name], carries[name], child_x, timed[name]
            )
    elif _innermost(module)[0] is module:
        yield from _circular_samples(module, state, x, timed)


def _circular_samples(
    module: AnyModule, state: Any, x: Any, timed: Any
) -> Iterator[LawViolation]:
    arrays, rest = eqx.partition(module, eqx.is_array)

    def update(arrays: Any, extras: Any) -> Any:
        updated = eqx.combine(arrays, rest).update_statistics(extras)
        return eqx.filter(updated, eqx.is_array)

    def recorded(arrays: Any, state: Any, x: Any) -> Any:
        return eqx.combine(arrays, rest)(state, x).rollout_extras

    arguments = (arrays, state, x)
    recording = trace(recorded, *arguments)
    shaping = {
        source.removeprefix("[0]"): jtu.keystr(path)
        for path, _ in jtu.tree_leaves_with_path(recording.result)
        for source, _ in used_leaves(recording, arguments, jtu.keystr(path).__eq__)
        if source.startswith("[0]")
    }
    if not shaping:
        return
    for statistic in sorted(shaping.keys() & _changed(trace(update, arrays, timed))):
        yield LawViolation(
            "statistics",
            f"these extras depend on {statistic}, which update_statistics changes by "
            "them",
            leaf=f".rollout_extras{shaping[statistic]}",
            cause="the module records its output, standardised already, and not its "
            "input, so the statistics chase themselves. Record the input as it comes",
        )


def _changed(update: Trace) -> set[str]:
    """The paths of the arrays that an update does not pass through as they are."""
    jaxpr = update.jaxpr.jaxpr
    results = jtu.tree_leaves_with_path(update.result)
    return {
        jtu.keystr(path)
        for (path, _), before, after in zip(
            results, jaxpr.invars[: len(results)], jaxpr.outvars, strict=True
        )
        if before is not after
    }


def _over_time(leaf: Any) -> Any:
    return jax.ShapeDtypeStruct((_LENGTH, *leaf.shape), leaf.dtype)


def _keeps_no_statistics(module: AnyModule) -> bool:
    return type(module).update_statistics is StatefulModule.update_statistics


def _innermost(module: AnyModule) -> list[AnyModule]:
    """The modules inside that hold no other modules; itself, if it holds none."""

    def is_child(node: Any) -> bool:
        return isinstance(node, StatefulModule) and node is not module

    children = filter(is_child, jtu.tree_leaves(module, is_leaf=is_child))
    return [leaf for child in children for leaf in _innermost(child)] or [module]
