"""What a network needs to know of an environment."""

import math
import operator
from collections.abc import Mapping
from typing import Any, cast, final, NamedTuple

import jax
import jax.numpy as jnp
import jax.tree_util as jtu

from .._failures import name_of, reset_failure
from .._tree import canonical
from .normalizer import Normalizer
from .types import AnyModule
from .utils import Filter, Flattener


_POLICY_KEY = "state"
_PRIVILEGED_KEY = "privileged_state"


@final
class Border(NamedTuple):
    """The border between a network and its environment.

    - `observation`: one observation's shapes and dtypes.
    - `is_state_entry`: whether `observation` is only the entry `"state"` of what comes.
    - `action_size`: components of an action, or the number of choices.
    - `discrete`: whether an action is a choice.
    """

    observation: Any
    is_state_entry: bool
    action_size: int
    discrete: bool

    @property
    def features(self) -> int:
        """Numbers in one observation."""
        leaves = jtu.tree_leaves(self.observation)
        return sum(math.prod(leaf.shape) for leaf in leaves)

    def layers(self, normalize: bool) -> list[AnyModule]:
        """What stands before the first layer that wants an array `[B, features]`."""
        layers: list[AnyModule] = []
        if self.is_state_entry:
            layers.append(Filter({_POLICY_KEY: _POLICY_KEY}))
        if normalize:
            shown = (
                {_POLICY_KEY: self.observation}
                if self.is_state_entry
                else self.observation
            )
            layers.append(Normalizer.like(shown))
        if self.is_state_entry or not self._is_vector:
            layers.append(Flattener())
        return layers

    @property
    def _is_vector(self) -> bool:
        """Whether one observation is an array of floats, `[features]`."""
        shape = getattr(self.observation, "shape", None)
        return shape == (self.features,) and jnp.issubdtype(
            self.observation.dtype, jnp.inexact
        )


def border_of(
    obs_size: int | None, action_size: int | None, discrete: bool, env: Any
) -> Border:
    """Reads the sizes from an environment, or takes them as given.

    **Arguments:** those of `make_mlp_actor_critic`.

    **Raises:**

    `ValueError` unless either both sizes are given or an environment that says them,
    and that can be reset.
    """
    if env is None:
        if obs_size is None or action_size is None:
            raise ValueError(
                "expected obs_size and action_size, or env=..., which says both"
            )
        return Border(
            jax.ShapeDtypeStruct((obs_size,), "float32"), False, action_size, discrete
        )
    if obs_size is not None or action_size is not None:
        raise ValueError(
            "expected either env=... or obs_size and action_size, got both; the "
            "environment says the sizes"
        )
    if isinstance(env, type):
        raise ValueError(
            f"expected an environment, got the class {env.__name__}; write "
            f"{env.__name__}(...)"
        )
    if not hasattr(env, "action_size"):
        raise ValueError(
            f"{name_of(env)} does not say its action_size; give it that "
            "attribute, or pass obs_size and action_size instead of env"
        )
    action_size = _action_size(env)
    observation = _observation(env)
    is_state_entry = isinstance(observation, Mapping) and {
        _POLICY_KEY,
        _PRIVILEGED_KEY,
    } <= set(cast(Mapping[str, Any], observation))
    return Border(
        observation[_POLICY_KEY] if is_state_entry else observation,
        is_state_entry,
        action_size,
        discrete or getattr(env, "discrete", False),
    )


def _action_size(env: Any) -> int:
    size = env.action_size
    try:
        number = 0 if isinstance(size, bool) else operator.index(size)
    except TypeError:
        number = 0
    if number < 1:
        raise ValueError(
            f"expected {name_of(env)}.action_size to be an integer of at least "
            f"1, got {' '.join(repr(size).split())}"
        )
    return number


def _observation(env: Any) -> Any:
    """The shapes and dtypes of one observation."""
    try:
        return canonical(jax.eval_shape(env.reset, jax.random.key(0)).obs)
    except Exception as error:
        raise ValueError(reset_failure(env, error)) from error
