"""Training on several devices."""

from collections.abc import Callable
from typing import Any, cast

import jax
import jax.tree_util as jtu
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array

from .types import TrainingState


def on_mesh(training_state: TrainingState, mesh: Mesh) -> TrainingState:
    """The same state with its environments spread over the devices of a mesh.

    `ppo_step` then runs on all of them: each device steps its own environments and
    learns from them, and gradients and statistics are summed over devices. Environments
    have keys, carries and starts of their own, so what they do does not change. With
    `PPOConfig(n_shards=...)` a multiple of the number of devices, no experience goes
    from one device to another.

    **Arguments:**

    - `training_state`: of `new_training_state`.
    - `mesh`: a `jax.sharding.Mesh` with one axis, over the devices.

    **Returns:**

    The state: environments and carries in equal parts, the rest on every device.

    **Raises:**

    `TypeError` for what is no mesh, and `ValueError` for a mesh of several axes, for a
    state of several seeds, and where the number of environments is not a multiple of
    the number of devices.

    **Example:**

    ```python
    mesh = jax.make_mesh((jax.device_count(),), ("environments",))
    state = on_mesh(new_training_state(env, network, config, key=key), mesh)
    state, metrics = jax.jit(ppo_step, static_argnums=0)(env, state, config)
    ```
    """
    if not isinstance(cast(object, mesh), Mesh):
        raise TypeError(
            f"expected a jax.sharding.Mesh, got {mesh!r}; for example "
            'jax.make_mesh((jax.device_count(),), ("environments",))'
        )
    if len(mesh.axis_names) != 1:
        raise ValueError(
            "expected a mesh with one axis, over the devices, got the axes "
            f"{', '.join(map(str, mesh.axis_names))}"
        )
    shape = training_state.rollout_state.is_first.shape
    if len(shape) != 1:
        raise ValueError(
            "expected the state of one training, with rollout_state.is_first [B], got "
            f"[{', '.join(map(str, shape))}]; a state of several seeds has an axis in "
            "front of the environments, so place each seed's state by itself"
        )
    batch = shape[0]
    if batch % mesh.size:
        raise ValueError(
            f"{batch} environments cannot be spread equally over {mesh.size} devices; "
            f"set n_envs to a multiple of {mesh.size}"
        )
    everywhere = NamedSharding(mesh, PartitionSpec())
    in_parts = NamedSharding(mesh, PartitionSpec(mesh.axis_names[0]))

    def placed(path: tuple[Any, ...], leaf: Array) -> Array:
        is_of_environments = path[0] == jtu.GetAttrKey("rollout_state")
        return jax.device_put(leaf, in_parts if is_of_environments else everywhere)

    return jtu.tree_map_with_path(placed, training_state)


def partitioned_by_compiler(
    step: Callable[[TrainingState], tuple[TrainingState, Any]],
    training_state: TrainingState,
) -> tuple[TrainingState, Any]:
    """Runs a step that leaves it to the compiler how its parts are distributed.

    On a mesh with explicit axes, such as `jax.make_mesh` makes by default, JAX wants
    every gather and every reshape to say so. This gives the state back as it is placed.

    **Arguments:**

    - `step`: from a state to the next one and something that all devices know.
    - `training_state`: placed on any devices.
    """
    mesh = jax.typeof(training_state.rollout_state.is_first).sharding.mesh
    if not mesh.explicit_axes:
        return step(training_state)
    placement = jtu.tree_map(lambda leaf: jax.typeof(leaf).sharding, training_state)
    everywhere = NamedSharding(mesh, PartitionSpec())
    automatic: Any = jax.sharding.auto_axes(step, out_sharding=(placement, everywhere))
    return automatic(training_state)
