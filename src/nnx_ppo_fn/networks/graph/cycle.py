"""Populations that form a cycle, taken through time in blocks of steps."""

import dataclasses
from typing import Any, final, NamedTuple, TypeAlias

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from ..._tree import tree_map
from .._ring_buffer import reaches_back
from .._routing import Call, Name, RunChild, unrolled_children
from .._scan import scan
from ..types import AnyModule, expect_output
from ..unroll import reset_where
from .connection import Connection
from .schedule import Component, wait
from .wiring import Wiring


_MOST_PIECES = 8
"""More of them would compile slowly."""


_BLOCKS_AT_ONCE = 2
"""Each round of a loop copies what is kept of the time before it."""


Span: TypeAlias = tuple[int, int]
"""A first step, and the one after the last."""

Spans: TypeAlias = dict[str, Span]
"""The steps that each member takes in a block or in several."""


@final
class _Latest(NamedTuple):
    """The latest activities of a member, and the step that comes after them.

    They are in pieces, in the order of time. What the gradient of a slice costs is the
    size of what it was cut from, and what compiling costs is the number of pieces: in a
    loop a piece is a single step, unless there are many.
    """

    pieces: tuple[Float[Array, "steps B size"], ...]
    until: int

    def between(self, start: int, stop: int) -> Float[Array, "steps B size"]:
        position = self.until - sum(map(len, self.pieces))
        parts: list[Array] = []
        for piece in self.pieces:
            first, end = max(start - position, 0), min(stop - position, len(piece))
            if first < end:
                parts.append(piece[first:end])
            position += len(piece)
        if not parts:
            return self.pieces[0][:0]
        return parts[0] if len(parts) == 1 else jnp.concatenate(parts)

    def last(self, steps: int) -> Float[Array, "steps B size"]:
        return self.between(self.until - steps, self.until)

    def kept(self, steps: int) -> tuple[Float[Array, "steps B size"], ...]:
        if steps > _MOST_PIECES:
            return (self.last(steps),)
        first = self.until - steps
        return tuple(self.between(at, at + 1) for at in range(first, self.until))

    def followed_by(self, activity: Float[Array, "steps B size"]) -> "_Latest":
        return _Latest((*self.pieces, activity), self.until + len(activity))


@final
class _Progress(NamedTuple):
    """Carries by name of the child, and latest activities by name of the member."""

    carries: dict[Name, Any]
    latest: dict[str, _Latest]


@final
class _Input(NamedTuple):
    """What a member gets from outside of the cycle, leaves `[steps, B, ...]`.

    - `drive`: what it receives.
    - `extras`: its own and those of the connections to it, or `None`.
    """

    drive: Any
    extras: Any


@final
class _Episodes(NamedTuple):
    """What members that take the same steps know of episodes, `[steps, B]`.

    - `is_first`: where one begins.
    - `goes_on`: where it has gone on for as long as a delay, by the delay.
    """

    is_first: Bool[Array, "steps B"]
    goes_on: dict[int, Bool[Array, "steps B"]]


@final
class _Inputs(NamedTuple):
    """All inputs of some blocks.

    - `members`: by name.
    - `episodes`: by how many steps members are ahead. Those that are ahead by as many
      have one array for a delay, so that what they see of a member is one array too.
    """

    members: dict[str, _Input]
    episodes: dict[int, _Episodes]


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

    def spans(self, blocks: range, length: int) -> Spans:
        """The steps of some blocks, for each member.

        **Arguments:**

        - `blocks`: their numbers. In those before 0, and in the last ones, some members
          take fewer steps than others.
        - `length`: of the rollout.
        """

        def step(block: int, ahead: int) -> int:
            return min(max(block * self.block + ahead, 0), length)

        return {
            name: (step(blocks.start, ahead), step(blocks.stop, ahead))
            for name, ahead in self.ahead.items()
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
        for name in self.ahead:
            start, stop = spans[name]
            if start == stop and _any_steps(spans):
                continue
            now = _Progress(carries, latest)
            part = self._run(name, now, inputs, spans[name])
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
        first = self.spans(range(1), blocks * self.block + max(self.ahead.values()))

        def advance(carry: Any, inputs: _Inputs) -> tuple[Any, Any]:
            carries, kept = carry
            latest = {name: _Latest(kept[name], self.ahead[name]) for name in kept}
            after, said = self.advance(_Progress(carries, latest), inputs, first)
            latest = after.latest
            kept = {name: latest[name].kept(self.reach(name)) for name in kept}
            activity = {name: latest[name].last(self.block) for name in kept}
            return (after.carries, kept), (activity, said)

        latest = progress.latest
        kept = {name: latest[name].kept(self.reach(name)) for name in self.ahead}
        stacked = tree_map(
            lambda leaf: leaf.reshape((blocks, self.block, *leaf.shape[1:])), inputs
        )
        (carries, _), outputs = scan(
            advance, (progress.carries, kept), stacked, unroll=_BLOCKS_AT_ONCE
        )
        activity, said = tree_map(
            lambda leaf: leaf.reshape((blocks * self.block, *leaf.shape[2:])), outputs
        )
        latest = {name: latest[name].followed_by(activity[name]) for name in self.ahead}
        return _Progress(carries, latest), said

    def _run(self, name: str, progress: _Progress, inputs: _Inputs, span: Span) -> Call:
        """A member and the connections to it, in a part of a block."""
        start, stop = span
        given = inputs.members[name]
        is_first, goes_on = inputs.episodes[self.ahead[name]]
        is_single = stop - start == 1
        run = _single_step(is_first[0]) if is_single else unrolled_children(is_first)
        part = self.call.inside(run, progress.carries, given.extras, is_first.shape)

        def arriving(connection: Connection) -> Array:
            delay, latest = connection.delay, progress.latest[connection.src]
            activity = latest.between(start - delay, stop - delay)
            if delay == 0:
                return activity
            return jnp.where(goes_on[delay][..., None], activity, 0)

        drive = self.wiring.drive(part, name, given.drive, self.ahead, arriving)
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
    given = call.rollout_extras

    def input_of(name: str) -> _Input:
        if given is None:
            return _Input(drives[name], None)
        return _Input(drives[name], {key: given[key] for key in cycle.children(name)})

    delays = {one.delay for one in inner.values()} - {0}
    goes_on = {delay: reaches_back(begins, delay) for delay in delays}
    episodes = _Episodes(is_first, goes_on)
    of_members = {name: input_of(name) for name in members}
    progress = _Progress(
        {key: call.carries[key] for name in members for key in cycle.children(name)},
        {name: _Latest((past.get(name, drives[name][:0]),), 0) for name in members},
    )
    parts: list[dict[Name, Any]] = []
    for blocks in _phases(cycle, length):
        spans = cycle.spans(blocks, length)
        inputs = _Inputs(
            {name: _cut(of_members[name], span) for name, span in spans.items()},
            {ahead[name]: _cut(episodes, span) for name, span in spans.items()},
        )
        if len(blocks) == 1:
            progress, said = cycle.advance(progress, inputs, spans)
        else:
            progress, said = cycle.scan(progress, inputs, len(blocks))
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


def _phases(cycle: _Cycle, length: int) -> list[range]:
    """The numbers of blocks that are one scan, and of single ones before and after it.

    All blocks in which every member takes part in full, if they are several, are the
    scan.
    """
    block, most_ahead = cycle.block, max(cycle.ahead.values())
    whole = (length - most_ahead) // block
    scanned = range(whole if whole > 1 else 0)
    alone = [*range(-most_ahead // block, 0), *range(len(scanned), -(-length // block))]
    phases = [range(number, number + 1) for number in alone] + [scanned]
    phases.sort(key=lambda blocks: blocks.start)
    found = [one for one in phases if _any_steps(cycle.spans(one, length))]
    # Without any steps, what children say still has to have its shape.
    return found or [range(1)]


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
