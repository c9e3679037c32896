"""Populations that form a cycle, taken through time in blocks of steps."""

import dataclasses
from typing import Any, final, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from ..._tree import tree_map
from .._ring_buffer import reaches_back
from .._routing import Call, Name, RunChild, unrolled_children
from ..types import AnyModule, expect_output
from ..unroll import reset_where
from .connection import Connection
from .schedule import Component, wait
from .wiring import Wiring


Span: TypeAlias = tuple[int, int]
"""A first step, and the one after the last."""

Spans: TypeAlias = dict[int, Span]
"""The steps that members take in a block, by how far ahead they are."""


@final
class _Latest(NamedTuple):
    """The latest activities of a member, and the step that comes after them."""

    activity: Float[Array, "k B size"]
    until: int

    def between(self, start: int, stop: int) -> Float[Array, "steps B size"]:
        zero = len(self.activity) - self.until
        return self.activity[zero + start : zero + stop]

    def last(self, steps: int) -> Float[Array, "steps B size"]:
        return self.activity[len(self.activity) - steps :]

    def followed_by(self, activity: Float[Array, "steps B size"]) -> "_Latest":
        if not len(self.activity):
            return _Latest(activity, self.until + len(activity))
        both = jnp.concatenate([self.activity, activity])
        return _Latest(both, self.until + len(activity))


@final
class _Progress(NamedTuple):
    """Carries by name of the child, and latest activities by name of the member."""

    carries: dict[Name, Any]
    latest: dict[str, _Latest]


@final
class _Inputs(NamedTuple):
    """What a cycle gets from outside in a block, leaves `[steps, B, ...]`.

    - `drives`: what each member receives.
    - `extras`: of each member and of the connections to it, or `None`.
    - `is_first`, `same_episode`: where an episode begins, and where it has gone on for
      as long as a delay; by how far ahead a member is.
    """

    drives: dict[str, Any]
    extras: dict[str, Any]
    is_first: dict[int, Any]
    same_episode: dict[int, dict[int, Any]]


@final
class _Cycle(NamedTuple):
    """Members of a graph that form a cycle.

    - `block`: how many steps they advance at a time.
    - `ahead`: by how many steps each is ahead, in the order in which they run.
    - `wiring`: of the connections between them alone.
    - `call`: the graph's.
    """

    block: int
    ahead: dict[str, int]
    wiring: Wiring
    call: Call

    def children(self, name: str) -> list[str]:
        """A member and the connections to it, which run when the member does."""
        inner = self.wiring.connections.items()
        return [name, *(key for key, one in inner if one.dst == name)]

    def reach(self, name: str) -> int:
        """How many activities of a member a block needs of the time before it."""
        outgoing = [edge for edge in self.wiring.edges if edge.src == name]
        return max((wait(edge, self.ahead) for edge in outgoing), default=0)

    def spans(self, number: int, length: int) -> Spans:
        """The steps of a block.

        **Arguments:**

        - `number`: of the block; in those before 0 and in the last ones some members
          take fewer steps than others.
        - `length`: of the rollout.
        """

        def within(step: int) -> int:
            return min(max(step, 0), length)

        starts = {ahead: number * self.block + ahead for ahead in self.ahead.values()}
        return {
            ahead: (within(start), within(start + self.block))
            for ahead, start in starts.items()
        }

    def advance(
        self, progress: _Progress, inputs: _Inputs, spans: Spans
    ) -> tuple[_Progress, dict[Name, Any]]:
        """One block, one member after the other.

        **Returns:**

        The progress made, and what each child that ran has given.
        """
        carries, latest = dict(progress.carries), dict(progress.latest)
        said: dict[Name, Any] = {}
        for name, ahead in self.ahead.items():
            start, stop = spans[ahead]
            if start == stop and _any_steps(spans):
                continue
            part = self._run(name, _Progress(carries, latest), inputs, spans[ahead])
            activity = part.outputs[name].output.astype(jnp.float32)
            latest[name] = latest[name].followed_by(activity)
            for child, result in part.outputs.items():
                carries[child] = result.next_state
                extras = result.rollout_extras if part.rollout_extras is None else None
                # Nobody outside needs what went over the connections.
                said[child] = dataclasses.replace(
                    result, next_state=(), output=(), rollout_extras=extras
                )
        return _Progress(carries, latest), said

    def scan(
        self, progress: _Progress, inputs: _Inputs, blocks: int
    ) -> tuple[_Progress, dict[Name, Any]]:
        """Several blocks in which all members take part, from block 0 on."""
        spans = {ahead: (ahead, ahead + self.block) for ahead in self.ahead.values()}

        def advance(carry: Any, inputs: _Inputs) -> tuple[Any, Any]:
            carries, kept = carry
            latest = {name: _Latest(kept[name], self.ahead[name]) for name in kept}
            after, said = self.advance(_Progress(carries, latest), inputs, spans)
            latest = after.latest
            kept = {name: latest[name].last(len(kept[name])) for name in kept}
            activity = {name: latest[name].last(self.block) for name in kept}
            return (after.carries, kept), (activity, said)

        latest = progress.latest
        kept = {name: latest[name].last(self.reach(name)) for name in self.ahead}
        stacked = tree_map(
            lambda leaf: leaf.reshape((blocks, self.block, *leaf.shape[1:])), inputs
        )
        (carries, _), outputs = jax.lax.scan(advance, (progress.carries, kept), stacked)
        activity, said = tree_map(
            lambda leaf: leaf.reshape((blocks * self.block, *leaf.shape[2:])), outputs
        )
        latest = {name: latest[name].followed_by(activity[name]) for name in self.ahead}
        return _Progress(carries, latest), said

    def _run(self, name: str, progress: _Progress, inputs: _Inputs, span: Span) -> Call:
        """A member and the connections to it, in a part of a block."""
        start, stop = span
        ahead = self.ahead[name]
        is_first, same_episode = inputs.is_first[ahead], inputs.same_episode[ahead]
        is_single = stop - start == 1
        run = _single_step(is_first[0]) if is_single else unrolled_children(is_first)
        extras = inputs.extras[name]
        part = self.call.inside(run, progress.carries, extras, is_first.shape)

        def arriving(connection: Connection) -> Array:
            delay, latest = connection.delay, progress.latest[connection.src]
            activity = latest.between(start - delay, stop - delay)
            if delay == 0:
                return activity
            return jnp.where(same_episode[delay][..., None], activity, 0)

        drive = inputs.drives[name]
        drive = self.wiring.drive(part, name, drive, self.ahead, arriving)
        _ = self.wiring.activity(part, name, drive)
        return part


def unroll_cycle(
    wiring: Wiring,
    component: Component,
    call: Call,
    drives: dict[str, Array],
    past: dict[str, Array],
    is_first: Bool[Array, "T B"],
    begins: Int[Array, "T B"],
) -> dict[str, Array]:
    """The activities of all members over a rollout, `[T, B, size]`.

    One scan over blocks of `component.block` steps, in which all members take part.
    What members that are ahead do before it, and others after it, goes in blocks of no
    more steps than that.

    **Arguments:**

    - `wiring`: of the whole graph.
    - `component`: whose members run.
    - `call`: the graph's; it is told what the members and the connections between them
      have given.
    - `drives`: what each member receives from outside, `[T, B, size]`.
    - `past`: the activities before the rollout, oldest first, `[delay, B, size]`.
    - `is_first`, `begins`: where episodes begin, and when each step's did.
    """
    members, length = component.members, len(is_first)
    inner = {
        key: one
        for key, one in wiring.connections.items()
        if one.src in members and one.dst in members
    }
    ahead = dict(zip(members, component.ahead, strict=True))
    cycle = _Cycle(component.block, ahead, Wiring(wiring.populations, inner), call)
    delays = {one.delay for one in inner.values()} - {0}
    same_episode = {delay: reaches_back(begins, delay) for delay in delays}
    given = call.rollout_extras
    extras = {
        name: None
        if given is None
        else {key: given[key] for key in cycle.children(name)}
        for name in members
    }

    def inputs(spans: Spans) -> _Inputs:
        return _Inputs(
            {name: _cut(drives[name], spans[ahead[name]]) for name in members},
            {name: _cut(extras[name], spans[ahead[name]]) for name in members},
            {key: _cut(is_first, span) for key, span in spans.items()},
            {key: _cut(same_episode, span) for key, span in spans.items()},
        )

    progress = _Progress(
        {key: call.carries[key] for name in members for key in cycle.children(name)},
        {name: _Latest(past.get(name, drives[name][:0]), 0) for name in members},
    )
    parts: list[dict[Name, Any]] = []
    for spans, blocks in _blocks(cycle, length):
        if blocks == 1:
            progress, said = cycle.advance(progress, inputs(spans), spans)
        else:
            progress, said = cycle.scan(progress, inputs(spans), blocks)
        parts.append(said)
    for name, carry in progress.carries.items():
        pieces = [part[name] for part in parts if name in part]
        result = tree_map(lambda *leaves: jnp.concatenate(leaves), *pieces)
        call.outputs[name] = dataclasses.replace(
            result,
            next_state=carry,
            rollout_extras=result.rollout_extras if given is None else given[name],
        )
    return {name: progress.latest[name].between(0, length) for name in members}


def _blocks(cycle: _Cycle, length: int) -> list[tuple[Spans, int]]:
    """The steps that are taken one after the other, and how many blocks they are.

    All blocks in which every member takes part in full, if there are several, are one
    scan. The others are blocks by themselves.
    """
    block, most_ahead = cycle.block, max(cycle.ahead.values())
    whole = max((length - most_ahead) // block, 0)
    scanned = whole if whole > 1 else 0
    found: list[tuple[Spans, int]] = []
    for number in range(-most_ahead // block, -(-length // block)):
        if number == 0 and scanned:
            until = scanned * block
            found.append(
                (
                    {steps: (steps, steps + until) for steps in cycle.ahead.values()},
                    scanned,
                )
            )
        elif not 0 < number < scanned:
            spans = cycle.spans(number, length)
            if _any_steps(spans):
                found.append((spans, 1))
    # Without any steps, what children say still has to have its shape.
    return found or [(cycle.spans(0, length), 1)]


def _any_steps(spans: Spans) -> bool:
    return any(start < stop for start, stop in spans.values())


def _cut(tree: Any, span: Span) -> Any:
    """The leaves, `[T, ...]`, in a span of time."""
    start, stop = span
    return tree_map(lambda leaf: leaf[start:stop], tree)


def _single_step(is_first: Bool[Array, " B"]) -> RunChild:
    """Runs a child over a single step, as unrolling it would but without a loop."""

    def run(
        name: Name, child: AnyModule, carry: Any, xs: Any, rollout_extras: Any
    ) -> Any:
        x, extras = tree_map(lambda leaf: leaf[0], (xs, rollout_extras))
        result = child(reset_where(child, is_first, carry), x, extras)
        expect_output(result, "__call__")
        timed = tree_map(
            lambda leaf: leaf[None], dataclasses.replace(result, next_state=())
        )
        return dataclasses.replace(timed, next_state=result.next_state)

    return run
