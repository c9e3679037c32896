"""Populations that form a cycle, taken through time in blocks of steps."""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int

from ..._tree import tree_map
from .._ring_buffer import reaches_back, shifted
from .._routing import Call, Name, RunChild, unrolled_children
from ..types import AnyModule, expect_output
from ..unroll import reset_where
from .connection import Connection
from .schedule import Component
from .wiring import Wiring


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

    One scan over blocks of `component.block` steps, then what is left of a block.
    Within a block the members take all of its steps at once, one after the other.

    **Arguments:**

    - `wiring`: of the whole graph.
    - `component`: whose members run.
    - `call`: the graph's; it is told what the members and the connections between them
      have given.
    - `drives`: what each member receives from outside, `[T, B, size]`.
    - `past`: the activities before the rollout, oldest first, `[delay, B, size]`.
    - `is_first`, `begins`: where episodes begin, and when each step's did.
    """
    members = component.members
    inner = {
        key: one
        for key, one in wiring.connections.items()
        if one.src in members and one.dst in members
    }
    children = [*members, *inner]
    extras = call.rollout_extras
    extras = None if extras is None else {name: extras[name] for name in children}
    longest = Wiring(wiring.populations, inner).longest_delays()
    tails = {name: past[name][len(past[name]) - k :] for name, k in longest.items()}
    delays = {one.delay for one in inner.values()} - {0}
    same_episode = {delay: reaches_back(begins, delay) for delay in delays}

    def advance(carry: Any, inputs: Any) -> tuple[Any, Any]:
        """One block, leaves `[steps, B, ...]`."""
        carries, tails = carry
        drives, same_episode, is_first, extras = inputs
        steps = len(is_first)
        run = _single_step(is_first[0]) if steps == 1 else unrolled_children(is_first)
        block = call.inside(run, carries, extras, is_first.shape)
        activity: dict[str, Array] = {}

        def arriving(connection: Connection) -> Array:
            source, delay = connection.src, connection.delay
            if delay == 0:
                return activity[source]
            late = shifted(tails[source], activity.get(source), delay, steps)
            return jnp.where(same_episode[delay][..., None], late, 0)

        for name in members:
            drive = wiring.drive(block, name, drives[name], members, arriving)
            activity[name] = wiring.activity(block, name, drive)
        tails = {
            name: jnp.concatenate([tail, activity[name]])[steps:]
            for name, tail in tails.items()
        }
        # Nobody outside needs the values that went over the inner connections.
        said = {
            name: dataclasses.replace(
                result,
                next_state=(),
                output=(),
                rollout_extras=result.rollout_extras if extras is None else None,
            )
            for name, result in block.outputs.items()
        }
        carries = {name: block.outputs[name].next_state for name in children}
        return (carries, tails), (activity, said)

    carry = ({name: call.carries[name] for name in children}, tails)
    inputs = (drives, same_episode, is_first, extras)
    (carries, _), (activity, said) = _in_blocks(
        advance, carry, inputs, len(is_first), component.block
    )
    for name, result in said.items():
        call.outputs[name] = dataclasses.replace(
            result,
            next_state=carries[name],
            rollout_extras=result.rollout_extras if extras is None else extras[name],
        )
    return activity


def _in_blocks(
    advance: Any, carry: Any, inputs: Any, length: int, block: int
) -> tuple[Any, Any]:
    """Scans over blocks of steps, with a shorter one at the end if need be.

    **Arguments:**

    - `advance`: takes a carry and the inputs of a block, leaves `[block, ...]`, and
      gives the next carry and the outputs of the block.
    - `inputs`: leaves `[length, ...]`.

    **Returns:**

    The last carry, and outputs with leaves `[length, ...]`.
    """
    whole = length // block if length >= 2 * block else 0
    parts: list[Any] = []
    done = whole * block
    if whole:
        stacked = tree_map(
            lambda leaf: leaf[:done].reshape((whole, block, *leaf.shape[1:])), inputs
        )
        carry, outputs = jax.lax.scan(advance, carry, stacked)
        parts.append(
            tree_map(lambda leaf: leaf.reshape((done, *leaf.shape[2:])), outputs)
        )
    while done < length or not parts:
        until = min(done + block, length)
        piece = tree_map(lambda leaf, a=done, b=until: leaf[a:b], inputs)
        carry, outputs = advance(carry, piece)
        parts.append(outputs)
        done = until
    if len(parts) == 1:
        return carry, parts[0]
    return carry, tree_map(lambda *leaves: jnp.concatenate(leaves), *parts)


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
