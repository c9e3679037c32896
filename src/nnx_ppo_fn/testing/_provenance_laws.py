"""The laws of provenance and freshness, read off a module's jaxprs."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from .._tree import is_key
from ._names import KeyBook, KeyMisuse
from ._provenance import name_keys, Walk
from ._traces import carry_leaves, CarryLeaf, Trace
from ._values import Unknown, Value
from .violation import LawViolation


def key_violations(
    born: Trace, rollout: Trace, replay: Trace | None, reset: Trace
) -> Iterator[LawViolation]:
    """What happens to keys over two steps, a reset and one more step.

    **Arguments:**

    - `born`: the trace of `initialize_state`.
    - `rollout`: of a step without extras.
    - `replay`: of a step with extras, or `None` for a module that has none.
    - `reset`: of `reset_state`.
    """
    leaves = carry_leaves(born.result)
    stale: list[LawViolation] = []
    for mode, step in (("rollout", rollout), ("replay", replay)):
        if step is not None:
            yield from _follow(leaves, born, step, reset, mode, stale)
    yield from stale


def used_key_leaves(state: Any, step: Trace) -> set[str]:
    """The paths of the carry's keys that a step draws or derives from.

    **Arguments:**

    - `state`: the carry that the step was traced with.
    - `step`: the trace of the step.
    """
    leaves, book = carry_leaves(state), KeyBook()
    names = [
        name_keys(leaf.leaf.shape, leaf.path, born=True)
        if is_key(leaf.leaf)
        else Unknown()
        for leaf in leaves
    ]
    others = len(step.jaxpr.in_avals) - len(names)
    try:
        Walk(book).closed(step.jaxpr, [*names, *(Unknown() for _ in range(others))])
    except KeyMisuse:
        # Another law's concern; what was used until then is known.
        pass
    return {name.text for name in book.recent}


def _follow(
    leaves: Sequence[CarryLeaf],
    born: Trace,
    step: Trace,
    reset: Trace,
    mode: str,
    stale: list[LawViolation],
) -> Iterator[LawViolation]:
    """Yields violations of provenance, and adds those of freshness to `stale`."""
    book = KeyBook()
    walk = Walk(book)
    try:
        keys = name_keys(born.jaxpr.in_avals[0].shape, "the key", born=True)
        state = walk.closed(born.jaxpr, [keys])
        yield from _raw_keys(leaves, state)
        _call_by_path(leaves, state)
        for method in (step, step, reset, step):
            state = _hold(book, leaves, state)
            book.recent.clear()
            others = len(method.jaxpr.in_avals) - len(state)
            inputs = [*state, *(Unknown() for _ in range(others))]
            state = walk.closed(method.jaxpr, inputs)[: len(leaves)]
            if method is step:
                stale.extend(_stale(book, leaves, state, mode))
    except KeyMisuse as misuse:
        yield LawViolation(
            "provenance",
            f"in the {mode}, the module {misuse.problem}",
            environment=misuse.name.environment,
            cause=misuse.cause,
        )


def _raw_keys(
    leaves: Sequence[CarryLeaf], state: Sequence[Value]
) -> Iterator[LawViolation]:
    for leaf, value in zip(leaves, state, strict=True):
        if isinstance(value, Unknown) and value.raw_keys is not None:
            yield LawViolation(
                "structure",
                "the carry holds the raw bits of random keys",
                leaf=leaf.path,
                cause="jax.random.key_data, or jax.random.PRNGKey: the bits are "
                "numbers like any others, which a reset must not look at. Carry typed "
                "keys, as initialize_state(keys) receives them",
            )


def _stale(
    book: KeyBook, leaves: Sequence[CarryLeaf], state: Sequence[Value], mode: str
) -> Iterator[LawViolation]:
    for leaf, names in zip(leaves, state, strict=True):
        if not is_key(leaf.leaf) or leaf.held:
            continue
        for name in names.flat:
            if name in book.recent:
                yield LawViolation(
                    "freshness",
                    f"in the {mode}, a step uses {name.text} and leaves it in the "
                    "carry for the next step to use again",
                    leaf=leaf.path,
                    environment=name.environment,
                    cause="the chain of keys does not advance. Put the next link into "
                    "next_state: `next_state, draw = advance_keys(state)`. A key that "
                    "is meant to last until the next reset belongs in Held(key)",
                )
                break


def _hold(
    book: KeyBook, leaves: Sequence[CarryLeaf], state: Sequence[Value]
) -> list[Value]:
    """The carry as a method receives it: what sits in `Held` is known as held."""

    def held(names: Any) -> Any:
        kept = np.empty(names.shape, object)
        for index in np.ndindex(names.shape):
            kept[index] = book.hold(names[index])
        return kept

    return [
        held(value) if leaf.held and is_key(leaf.leaf) else value
        for leaf, value in zip(leaves, state, strict=True)
    ]


def _call_by_path(leaves: Sequence[CarryLeaf], state: Sequence[Value]) -> None:
    """Names the keys of a fresh carry after their place in it."""
    places: dict[Any, list[str]] = {}
    for leaf, names in zip(leaves, state, strict=True):
        if is_key(leaf.leaf):
            for name in dict.fromkeys(names.flat):
                places.setdefault(name, []).append(leaf.path)
    for name, paths in places.items():
        same = " (the same key)" if len(paths) > 1 else ""
        name.text = f"the carry's key {' and '.join(paths)}{same}"
