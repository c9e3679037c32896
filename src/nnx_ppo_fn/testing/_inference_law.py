"""The law of inference."""

from typing import Any

import equinox as eqx
import jax
import jax.tree_util as jtu

from .._tree import is_key
from ..networks.types import AnyModule, has_inference_flag
from ._compare import difference
from ._compile import unoptimised
from ._dependence import used_leaves
from ._localise import innermost
from ._traces import key_shapes, trace, with_batch
from ._trial import invent, Trial
from .violation import LawViolation


def inference(trial: Trial) -> None:
    """With its `inference` flag set, a module's output depends on no key.

    Child by child: one without a flag may draw beside others that have one.
    """
    if not has_inference_flag(trial.module):
        return
    network = eqx.nn.inference_mode(trial.module)
    x = with_batch(jtu.tree_map(lambda leaf: leaf[0], trial.xs), trial.batch)
    for module, child_x in innermost(network, x, trial.batch):
        if has_inference_flag(module):
            _without_keys(trial, module, child_x)


def _without_keys(trial: Trial, module: AnyModule, x: Any) -> None:
    def run(state: Any, x: Any) -> Any:
        return module(state, x).output

    state = jax.eval_shape(module.initialize_state, key_shapes(trial.batch))
    used = used_leaves(trace(run, state, x), (state, x))
    keys = [path for path, leaf in used if path.startswith("[0]") and is_key(leaf)]
    if keys:
        _expect_no_effect(trial, module, x, keys[0])


def _expect_no_effect(trial: Trial, module: AnyModule, x: Any, path: str) -> None:
    """The output is computed from keys: whether they matter, only numbers can tell."""
    x = invent(x, trial.random("inference"))
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


@unoptimised
def _output(module: AnyModule, state: Any, x: Any) -> Any:
    return module(state, x).output
