"""The optimiser, and its learning rate."""

from typing import Any, cast

import jax.numpy as jnp
import jax.tree_util as jtu
import optax
from jaxtyping import Array, Float

from .._custom_types import PyTree
from .config import PPOConfig, Scalar


def make_optimizer(
    config: PPOConfig, learning_rate: Scalar
) -> optax.GradientTransformation:
    """Adam as the configuration says, at a learning rate that may be traced.

    All parameters of a dtype are one vector to it: one operation on each instead of one
    on each of a network's many arrays, which compiles sooner.

    **Arguments:**

    - `config`: epsilon, clipping and decay.
    - `learning_rate`: of this iteration.

    **Returns:**

    The optimiser; its state holds vectors as well.
    """
    clipping, decay = config.gradient_clipping, config.weight_decay
    # What is switched off leaves its place, so that a state fits every configuration.
    return _on_vectors(
        optax.chain(
            optax.identity()
            if clipping is None
            else optax.clip_by_global_norm(clipping),
            optax.scale_by_adam(eps=config.adam_epsilon),
            optax.identity() if decay is None else optax.add_decayed_weights(decay),
            optax.scale(-learning_rate),
        )
    )


def learning_rate_at(config: PPOConfig, env_steps: Float[Array, ""]) -> Array:
    """The learning rate after `env_steps` environment steps: it falls linearly.

    A function of the steps and not of calls, so that a resumed run goes on where it
    stopped.
    """
    progress = jnp.clip(env_steps / float(max(config.total_steps, 1)), 0, 1)
    remaining = 1 - (1 - config.learning_rate_final_fraction) * progress
    return config.learning_rate * remaining


def _on_vectors(inner: optax.GradientTransformation) -> optax.GradientTransformation:
    """The optimiser of the same parameters, one vector for each of their dtypes.

    `optax.flatten` makes one vector of all, of a dtype that holds them.

    **Arguments:**

    - `inner`: does not care which array of its parameters a number is in.
    """

    def init(params: Any) -> Any:
        return inner.init(_vectors(params))

    def update(updates: Any, state: Any, params: Any = None) -> tuple[Any, Any]:
        vectors, state = inner.update(_vectors(updates), state, _vectors(params))
        return _arrays(cast(Any, vectors), updates), state

    return optax.GradientTransformation(init, update)


def _vectors(tree: PyTree) -> dict[str, Float[Array, " size"]]:
    """All numbers of a tree, by their dtype."""
    leaves: dict[str, list[Array]] = {}
    for leaf in jtu.tree_leaves(tree):
        leaves.setdefault(str(leaf.dtype), []).append(leaf.ravel())
    return {dtype: jnp.concatenate(found) for dtype, found in leaves.items()}


def _arrays(vectors: dict[str, Float[Array, " size"]], like: PyTree) -> PyTree:
    """The arrays of a tree `like` another, out of its `_vectors`."""
    starts = dict.fromkeys(vectors, 0)

    def array(leaf: Any) -> Array:
        dtype = str(leaf.dtype)
        start = starts[dtype]
        starts[dtype] = start + leaf.size
        return vectors[dtype][start : starts[dtype]].reshape(leaf.shape)

    return jtu.tree_map(array, like)
