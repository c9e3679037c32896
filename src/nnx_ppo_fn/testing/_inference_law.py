"""The law of inference."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.tree_util as jtu
import numpy as np

from .._tree import is_key
from ..networks._routing import Container, Name, named
from ..networks.types import AnyModule
from ._compare import difference
from ._compile import compiled
from ._dependence import used_leaves
from ._localise import record_inputs
from ._traces import key_shapes, trace, with_batch
from ._trial import Trial
from .violation import LawViolation


def inference(trial: Trial) -> None:
    """With its `inference` flag set, a module's output depends on no key."""
    x = with_batch(jtu.tree_map(lambda leaf: leaf[0], trial.xs), trial.batch)
    _without_keys(trial, eqx.nn.inference_mode(trial.module), x)


def _without_keys(trial: Trial, module: AnyModule, x: Any) -> None:
    """Child by child: one without a flag may draw beside others that have one."""
    if not _has_flag(module):
        return
    state = jax.eval_shape(module.initialize_state, key_shapes(trial.batch))
    if isinstance(module, Container):
        received: dict[Name, Any] = {}
        jax.eval_shape(
            lambda state, x: record_inputs(module, state, x, received), state, x
        )
        children = named(module.children())
        for name, child_x in received.items():
            _without_keys(trial, children[name], child_x)
        return

    def run(state: Any, x: Any) -> Any:
        return module(state, x).output

    used = used_leaves(trace(run, state, x), (state, x))
    keys = [path for path, leaf in used if path.startswith("[0]") and is_key(leaf)]
    if keys:
        _expect_no_effect(trial, module, x, keys[0])


def _expect_no_effect(trial: Trial, module: AnyModule, x: Any, path: str) -> None:
    """The output is computed from keys: whether they matter, only numbers can tell."""
    random = trial.random("inference")

    def numbers(leaf: Any) -> Any:
        normal = random.standard_normal(leaf.shape)
        if jnp.issubdtype(leaf.dtype, jnp.inexact):
            return jnp.asarray(normal.astype(leaf.dtype))
        return jnp.asarray(np.ones(leaf.shape), leaf.dtype)

    x = jtu.tree_map(numbers, x)
    state = module.initialize_state(trial.keys)
    other = jtu.tree_map(
        lambda old, new: new if is_key(new) else old,
        state,
        module.initialize_state(trial.other_keys),
    )
    different = difference(_output(module, state, x), _output(module, other, x))
    if different is not None:
        raise LawViolation(
            "inference",
            f"with inference set, the output depends on the key state"
            f"{path.removeprefix('[0]')}: {different}",
            leaf=different.leaf,
            environment=different.environment,
            size=different.size,
            cause="the module has an `inference` flag but draws all the same. Return "
            "the mean, the mode, or the input as it is where `self.inference` is set",
        )


@compiled
def _output(module: AnyModule, state: Any, x: Any) -> Any:
    return module(state, x).output


def _has_flag(module: AnyModule) -> bool:
    return any(
        isinstance(path[-1], jtu.GetAttrKey) and path[-1].name == "inference"
        for path, _ in jtu.tree_leaves_with_path(module)
        if path
    )
