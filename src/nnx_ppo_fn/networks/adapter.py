"""The end of a PPO network: an action port and a value port."""

from typing import Any, cast, final

import jax
import jax.numpy as jnp
import jax.tree_util as jtu

from .._tree import shape_text
from ._errors import CompositionError
from ._routing import Call, Children, Container
from .types import AnyModule, expect_module, PPONetworkOutput, SampledAction


@final
class PPOAdapter(Container[Any, PPONetworkOutput]):
    """Runs two modules on one input and packs what PPO needs.

    `action` must return a `SampledAction`, or a tree of them (one per key of a bank
    of samplers). `value` returns `[B]` or `[B, 1]`, or a tree of those with one entry
    per reward; values are `float32` whatever the dtype of the network.
    """

    action: AnyModule
    value: AnyModule

    def __init__(self, action: Any, value: Any):
        """**Arguments:**

        - `action`: the module that ends in an action sampler.
        - `value`: the module that estimates the value.
        """
        expect_module("PPOAdapter.action", action)
        expect_module("PPOAdapter.value", value)
        self.action = action
        self.value = value

    def children(self) -> Children:
        """The two ports."""
        return {"action": self.action, "value": self.value}

    def route(self, call: Call, x: Any) -> PPONetworkOutput:
        """Both ports see the same input."""
        sampled = call("action", x)
        self._expect_sampled(sampled)
        actions = jtu.tree_map(lambda a: a.action, sampled, is_leaf=_is_sampled)
        loglikelihoods = jtu.tree_map(
            lambda a: a.log_likelihood, sampled, is_leaf=_is_sampled
        )
        values = jtu.tree_map(
            lambda value: self._scalar(value, call.batch_shape), call("value", x)
        )
        return PPONetworkOutput(actions, loglikelihoods, values)

    def _expect_sampled(self, sampled: Any) -> None:
        leaves = jtu.tree_leaves_with_path(sampled, is_leaf=_is_sampled)
        others = [(path, leaf) for path, leaf in leaves if not _is_sampled(leaf)]
        if leaves and not others:
            return
        got = type(sampled).__name__
        if others:
            path, leaf = others[0]
            dtype = getattr(leaf, "dtype", None)
            got = f"{dtype} {shape_text(leaf)}" if dtype else type(leaf).__name__
            got += f" at {jtu.keystr(path)}" if path else ""
        raise CompositionError(
            "expected the action port to end in an action sampler (a tree of "
            f"SampledAction), got {got}",
            ("PPOAdapter.action",),
            type(self.action).__name__,
        )

    def _scalar(self, value: Any, batch_shape: tuple[int, ...]) -> jax.Array:
        """One number per environment, from `[..., B]` or `[..., B, 1]`."""
        value = cast(jax.Array, value)
        if value.shape == (*batch_shape, 1):
            return value[..., 0].astype(jnp.float32)
        if value.shape == batch_shape:
            return value.astype(jnp.float32)
        raise CompositionError(
            "expected the value port to return one number per environment, [B] or "
            f"[B, 1], got {list(value.shape)}",
            ("PPOAdapter.value",),
            type(self.value).__name__,
        )


def _is_sampled(node: Any) -> bool:
    return isinstance(node, SampledAction)
