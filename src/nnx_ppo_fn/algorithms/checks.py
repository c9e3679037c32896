"""Finds what does not fit before anything compiles: environment, network, settings.

Everything here reads shapes, never values: nothing is compiled, and it also works on
traced arguments.
"""

import warnings
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import jax.tree_util as jtu

from .._custom_types import PyTree
from .._failures import first_line, name_of, reset_failure
from .._tree import canonical, shape_text
from ..envs import EnvState, RLEnv
from ..networks._errors import CompositionError
from ..networks._trainable import partition_trainable
from ..networks.types import AnyModule, PPONetworkOutput
from ..testing import check_structure
from .environments import reset_one, step_one
from .types import RolloutState


# What `episode_flags` reads.
_FLAGS = ("terminated", "truncated", "truncation", "time_out")

# Large enough to tell the batch axis from others, small enough to read in an error.
_BATCH = 4


class InvalidEnvironmentError(ValueError):
    """An environment that breaks the protocol, or that a network cannot act in."""


def check_training(env: RLEnv, network: AnyModule) -> None:
    """Checks an environment, a network, and that they fit together.

    **Arguments:**

    - `env`: the environment.
    - `network`: the whole PPO network.

    **Raises:**

    `InvalidEnvironmentError`, `CompositionError` or `testing.LawViolation`, each naming
    the place and what to change.
    """
    check_structure(network, _batched(_abstract_reset(env).obs))
    check_acting(env, network)
    _warn_if_tied(network)


def check_acting(env: RLEnv, network: AnyModule) -> None:
    """Checks an environment, and that a network can act in it.

    Arguments are those of `check_training`.

    **Raises:**

    `InvalidEnvironmentError` or `CompositionError`.
    """
    state = _abstract_reset(env)
    decided = _abstract_decision(network, _batched(state.obs))
    _check_output(decided)
    actions = _unbatched(decided.actions)
    _check_actions(env, actions)
    _check_step(env, state, actions)
    _check_values(state.reward, decided.value_estimates)


def check_resumed(env: RLEnv, rollout_state: RolloutState) -> None:
    """Checks that environments that are under way are those of `env`.

    **Arguments:**

    - `env`: the environment.
    - `rollout_state`: of the training that is to go on.

    **Raises:**

    `InvalidEnvironmentError` where the states differ in structure, shapes or types.
    """
    expected = _abstract_reset(env)
    actual = _unbatched(rollout_state.env_state)
    if _signature(expected) != _signature(actual):
        raise InvalidEnvironmentError(
            f"initial_state was made with another environment: {name_of(env)}'s "
            f"state is {shape_text(expected)}, that of initial_state "
            f"{shape_text(actual)}"
        )


def _signature(tree: PyTree) -> Any:
    leaves, structure = jtu.tree_flatten(tree)
    return structure, [(leaf.shape, leaf.dtype) for leaf in leaves]


def _abstract_reset(env: Any) -> Any:
    if isinstance(env, type):
        raise InvalidEnvironmentError(
            f"expected an environment, got the class {env.__name__}; write "
            f"{env.__name__}(...)"
        )
    if not isinstance(env, RLEnv):
        raise InvalidEnvironmentError(
            "expected an environment with reset(key) and step(state, action), got "
            f"{name_of(env)}"
        )
    name = name_of(env)
    try:
        state = jax.eval_shape(lambda key: reset_one(env, key), jax.random.key(0))
    except Exception as error:
        raise InvalidEnvironmentError(reset_failure(env, error)) from error
    if not isinstance(state, EnvState):
        raise InvalidEnvironmentError(
            f"{name}.reset must return a state with the fields obs, reward, done, info "
            f"and metrics, got {type(state).__name__}; nnx_ppo_fn.envs.State is one"
        )
    for field in ("info", "metrics"):
        if not isinstance(getattr(state, field), Mapping):
            raise InvalidEnvironmentError(
                f"expected {name}'s {field} to be a mapping, got "
                f"{type(getattr(state, field)).__name__}; an empty one will do"
            )
    if not jtu.tree_leaves(state.obs):
        raise InvalidEnvironmentError(f"{name}'s observation holds no array")
    for path, leaf in jtu.tree_leaves_with_path((state.reward, state.done)):
        if leaf.shape != ():
            kind = ("reward", "done")[path[0].idx]
            raise InvalidEnvironmentError(
                f"expected {name}'s {kind}{jtu.keystr(path[1:])} to be one number, got "
                f"{shape_text(leaf)}; reset and step are for one environment, without "
                "a batch axis"
            )
    _check_info(name, state)
    return state


def _check_info(name: str, state: Any) -> None:
    """Checks the entries of `info` that mean something to the algorithms."""
    for entry in state.info:
        if not isinstance(entry, str):
            raise InvalidEnvironmentError(
                f"expected the names in {name}'s info to be strings, got {entry!r}"
            )
    for flag in _FLAGS:
        if flag in state.info and not _is_flag(state.info[flag]):
            raise InvalidEnvironmentError(
                f"expected {name}'s info[{flag!r}] to be one bool, which says how the "
                f"episode ended, got {_described(state.info[flag])}; give it another "
                "name if it means something else"
            )
    last = state.info.get("final_observation", state.obs)
    if _signature(canonical(last)) != _signature(canonical(state.obs)):
        raise InvalidEnvironmentError(
            f"expected {name}'s info['final_observation'] to be like its observation, "
            f"{_described(state.obs)}, got {_described(last)}; leave it out if the "
            "environment does not restart itself"
        )


def _is_flag(entry: Any) -> bool:
    kinds = (jnp.bool_, jnp.floating, jnp.int8, jnp.uint8)
    return getattr(entry, "shape", None) == () and any(
        jnp.issubdtype(entry.dtype, kind) for kind in kinds
    )


def _described(tree: PyTree) -> str:
    """The dtypes and shapes of a tree."""
    if hasattr(tree, "shape"):
        return f"{tree.dtype} {shape_text(tree)}"
    leaves = jtu.tree_leaves_with_path(tree)
    parts = [f"{jtu.keystr(path)} {_described(leaf)}" for path, leaf in leaves]
    return ", ".join(parts) or repr(tree)


def _abstract_decision(network: AnyModule, observation: PyTree) -> Any:
    keys = jax.eval_shape(lambda key: jax.random.split(key, _BATCH), jax.random.key(0))

    def decide(keys: Any, observation: Any) -> Any:
        return network(network.initialize_state(keys), observation).output

    return jax.eval_shape(decide, keys, observation)


def _check_output(decided: Any) -> None:
    if not isinstance(decided, PPONetworkOutput):
        raise CompositionError(
            "expected the network's output to be a PPONetworkOutput, got "
            f"{type(decided).__name__}; end the network in a "
            "PPOAdapter(action=..., value=...)"
        )
    for name in ("loglikelihoods", "value_estimates"):
        for path, leaf in jtu.tree_leaves_with_path(getattr(decided, name)):
            if leaf.shape != (_BATCH,) or leaf.dtype != jnp.float32:
                raise CompositionError(
                    f"expected {name}{jtu.keystr(path)} float32 [B], one number per "
                    f"environment, got {leaf.dtype} {shape_text(leaf)}"
                )


def _check_step(env: RLEnv, state: Any, actions: PyTree) -> None:
    """Steps abstractly, and compares what comes out with what `reset` gave."""
    try:
        stepped = jax.eval_shape(lambda s, a: step_one(env, s, a), state, actions)
    except Exception as error:
        raise InvalidEnvironmentError(
            f"{name_of(env)}.step fails for the network's action "
            f"{shape_text(actions)}: {first_line(error)}"
        ) from error
    expected, actual = jtu.tree_structure(state), jtu.tree_structure(stepped)
    if expected != actual:
        raise InvalidEnvironmentError(
            f"{name_of(env)}.step returns another structure than reset, so it "
            f"cannot be looped over: only reset has {_entries(state, stepped)}, "
            f"only step has {_entries(stepped, state)}"
        )
    after = jtu.tree_leaves(stepped)
    for (path, before), leaf in zip(
        jtu.tree_leaves_with_path(state), after, strict=True
    ):
        if before.shape != leaf.shape or before.dtype != leaf.dtype:
            raise InvalidEnvironmentError(
                f"{name_of(env)}.step returns state{jtu.keystr(path)} as "
                f"{leaf.dtype} {shape_text(leaf)}, reset as {before.dtype} "
                f"{shape_text(before)}; both must be the same"
            )


def _check_actions(env: Any, actions: PyTree) -> None:
    """Compares with what an environment says of its actions, if it says anything.

    Environments describe actions of one array; trees of them are left to `step`.
    """
    is_told = hasattr(env, "action_size") and hasattr(env, "discrete")
    if not is_told or len(jtu.tree_leaves(actions)) != 1:
        return
    (actions,) = jtu.tree_leaves(actions)
    size = env.action_size
    expected = "one integer" if env.discrete else f"{size} numbers"
    shape = () if env.discrete else (size,)
    kind = jnp.integer if env.discrete else jnp.floating
    if actions.shape != shape or not jnp.issubdtype(actions.dtype, kind):
        raise CompositionError(
            f"{name_of(env)} takes actions of {expected}, the network gives "
            f"{shape_text(actions)}"
        )


def _check_values(rewards: PyTree, values: PyTree) -> None:
    if jtu.tree_structure(rewards) != jtu.tree_structure(values):
        raise CompositionError(
            "expected one value per reward: the rewards are "
            f"{jtu.tree_structure(rewards)}, the network's values are "
            f"{jtu.tree_structure(values)}"
        )


def _warn_if_tied(network: AnyModule) -> None:
    """One array in two places becomes two arrays, each trained by itself."""
    parameters, _ = partition_trainable(network)
    places: dict[int, list[str]] = {}
    for path, leaf in jtu.tree_leaves_with_path(parameters):
        places.setdefault(id(leaf), []).append(f"network{jtu.keystr(path)}")
    tied = [" and ".join(same) for same in places.values() if len(same) > 1]
    if tied:
        warnings.warn(
            f"{'; '.join(tied)} are one array; training unties them and gives each "
            "its own values",
            stacklevel=4,
        )


def _batched(tree: PyTree) -> PyTree:
    return jtu.tree_map(
        lambda leaf: jax.ShapeDtypeStruct((_BATCH, *leaf.shape), leaf.dtype), tree
    )


def _unbatched(tree: PyTree) -> PyTree:
    return jtu.tree_map(
        lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), tree
    )


def _entries(tree: PyTree, other: PyTree) -> str:
    """The leaves that only `tree` has, by path."""
    mine = {jtu.keystr(path) for path, _ in jtu.tree_leaves_with_path(tree)}
    theirs = {jtu.keystr(path) for path, _ in jtu.tree_leaves_with_path(other)}
    return ", ".join(sorted(mine - theirs)) or "nothing more"
