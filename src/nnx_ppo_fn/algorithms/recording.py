"""Plays episodes and keeps what the modules of the network put out in every step."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, cast, final

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.tree_util as jtu
import numpy as np
from jaxtyping import Array, Bool, Int, Key

from .._bytes import bytes_text
from .._custom_types import PyTree
from .._expect import expect_count
from .._keys import derive, expect_key, one_per_environment
from ..envs import episode_flags, RLEnv
from ..networks.recording import extract_activations, with_recording
from ..networks.types import AnyModule
from .checks import check_acting
from .compiled import compiled
from .environments import reset_all, step_all
from .recorded_dataset import as_dataset
from .types import StaticHalf


_LARGEST_NAMED = 3


@final
class Recording(eqx.Module):
    """One episode in each of some environments, as `record_activations_rollout` plays.

    All leaves are `[T, B, ...]`. Steps after the end of an episode are in it, and mean
    nothing: `ongoing` says which ones count, and `steps` picks them.

    - `activations`: by path of the module, as `with_recording` describes paths.
    - `observations`: what the network saw.
    - `actions`, `rewards`: what it did, and what that brought.
    - `ongoing`: whether the step belongs to the episode, its last step included.
    - `done`, `truncated`: whether an episode ended with this step, and whether a time
      limit ended it.
    - `state_data`: what was asked for of the environment's state that the network saw,
      or `None`.
    """

    activations: dict[str, Any]
    observations: Any
    actions: Any
    rewards: Any
    ongoing: Bool[Array, "..."]
    done: Bool[Array, "..."]
    truncated: Bool[Array, "..."]
    state_data: Any = None

    @property
    def lifespans(self) -> Int[Array, " B"]:
        """How many steps each episode has."""
        return jnp.sum(self.ongoing, axis=0, dtype=jnp.int32)

    def steps(self, tree: Any) -> Any:
        """All steps that belong to episodes, one after the other.

        **Arguments:**

        - `tree`: a part of this recording, leaves `[T, B, ...]`.

        **Returns:**

        The same tree with NumPy arrays `[N, ...]`, in the order of time: all
        environments at the first step, then those that are left at the second.

        **Example:**

        ```python
        hidden = recording.steps(recording.activations["[0]"])
        ```
        """
        ongoing = np.asarray(self.ongoing)
        return jtu.tree_map(lambda leaf: np.asarray(leaf)[ongoing], tree)

    def to_xarray(self) -> Any:
        """The recording as a data set of xarray, which the extra `xarray` brings.

        Its dimensions are `step` and `environment`, and one for the features of each
        variable: `actions_feature`. Activations stand under the paths of their modules,
        that of the network itself under `network`, and all else under its name here. A
        tree becomes a variable for each of its arrays, such as `observations['speed']`.
        Random keys are left out, and `bfloat16` becomes `float32`.

        Steps after the end of an episode are kept, so that integers stay integers.

        **Returns:**

        An `xarray.Dataset`.

        **Raises:**

        An `ImportError` that says what to install where xarray is missing.

        **Example:**

        ```python
        data = recording.to_xarray()
        hidden = data["[2].M1"].where(data.ongoing)  # NaN after the end
        hidden.mean("environment")  # of the episodes that are still going on
        ```
        """
        return as_dataset(self)


def record_activations_rollout(
    env: RLEnv,
    network: AnyModule,
    *,
    key: Key[Array, ""],
    n_envs: int,
    max_episode_length: int,
    select: str | Sequence[str] | None = None,
    state_data: Callable[[Any], Any] | None = None,
    deterministic: bool = True,
    memory_limit: int = 2**30,
) -> Recording:
    """Plays one episode in each of `n_envs` environments, and looks inside.

    They are the episodes that `evaluate` plays with this key. All is one compiled
    program, and the recording is on the device; what it will take is known before it is
    compiled.

    **Arguments:**

    - `env`: the environment.
    - `network`: the policy, with a fresh carry for each episode. It may have lesions
      and clamps: see `with_override`.
    - `key`: of the starts and of the network's noise.
    - `n_envs`: episodes, `B`.
    - `max_episode_length`: steps, `T`, after which an episode is left.
    - `select`: paths of the modules to record, as in `with_recording`.
    - `state_data`: what to keep of the environment's state, such as the physics that
      the network does not see: takes the state of one environment, before the step, and
      returns arrays. Give a named function: a new `lambda` compiles anew.
    - `deterministic`: whether the network runs in inference mode, without noise and
      with its likeliest actions.
    - `memory_limit`: the number of bytes that a recording may take.

    **Returns:**

    A `Recording`.

    **Raises:**

    `MemoryError` if it would take more than `memory_limit`, with the parts that take
    most; `InvalidEnvironmentError` or `CompositionError` where environment and network
    do not fit; `ValueError` or `TypeError` for other arguments that are not as said,
    such as a path at which nothing stands.
    """
    expect_key(key)
    run = _player(
        env, network, n_envs, max_episode_length, select, state_data, deterministic
    )
    sizes = _sizes(jax.eval_shape(run, key))
    total = sum(sizes.values())
    if total > memory_limit:
        largest = sorted(sizes, key=lambda name: -sizes[name])[:_LARGEST_NAMED]
        parts = [f"{name!r} ({bytes_text(sizes[name])})" for name in largest]
        raise MemoryError(
            f"a recording of {max_episode_length} steps in {n_envs} environments takes "
            f"{bytes_text(total)}, more than memory_limit={memory_limit} bytes; most "
            f"of it is {', '.join(parts)}. Record fewer modules (select=...), steps or "
            "environments, or raise memory_limit"
        )
    return run(key)


def recording_memory(
    env: RLEnv,
    network: AnyModule,
    *,
    n_envs: int,
    max_episode_length: int,
    select: str | Sequence[str] | None = None,
    state_data: Callable[[Any], Any] | None = None,
    deterministic: bool = True,
) -> dict[str, int]:
    """How much memory `record_activations_rollout` would take, without running it.

    **Arguments:**

    - all: those of `record_activations_rollout`.

    **Returns:**

    Bytes, by path for activations and by name for the other fields of a `Recording`.
    """
    run = _player(
        env, network, n_envs, max_episode_length, select, state_data, deterministic
    )
    return _sizes(jax.eval_shape(run, jax.eval_shape(lambda: jax.random.key(0))))


def _player(
    env: RLEnv,
    network: AnyModule,
    n_envs: int,
    max_episode_length: int,
    select: str | Sequence[str] | None,
    state_data: Callable[[Any], Any] | None,
    deterministic: bool,
) -> Callable[[Any], Recording]:
    """A function from a key to a recording, not run yet."""
    expect_count("n_envs", n_envs, least=1)
    expect_count("max_episode_length", max_episode_length, least=1)
    if deterministic:
        network = eqx.nn.inference_mode(network)
    network = with_recording(network, select)
    arrays, static = eqx.filter(network, eqx.is_array), StaticHalf.of(network)
    run = compiled(_play, static=(0, 2, 4, 5, 6))
    return lambda key: run(
        env, arrays, static, key, n_envs, max_episode_length, state_data
    )


def _play(
    env: RLEnv,
    arrays: PyTree,
    static: StaticHalf,
    key: Key[Array, ""],
    n_envs: int,
    max_episode_length: int,
    state_data: Callable[[Any], Any] | None,
) -> Recording:
    network: AnyModule = eqx.combine(arrays, static.tree)
    check_acting(env, network)
    keys = one_per_environment(key, n_envs)
    start = (
        reset_all(env, derive(keys, "environment")),
        network.initialize_state(derive(keys, "network")),
        jnp.ones(n_envs, jnp.bool_),
    )

    def step(now: tuple[Any, PyTree, Bool[Array, " B"]], _: None) -> Any:
        env_state, carry, ongoing = now
        decided = network(carry, env_state.obs)
        actions = decided.output.actions
        stepped = step_all(env, env_state, actions)
        done, truncated = episode_flags(stepped)
        recording = Recording(
            activations=extract_activations(decided.metrics),
            observations=env_state.obs,
            actions=actions,
            rewards=stepped.reward,
            ongoing=ongoing,
            done=done,
            truncated=truncated,
            state_data=None if state_data is None else jax.vmap(state_data)(env_state),
        )
        return (stepped, decided.next_state, ongoing & ~done), recording

    return jax.lax.scan(step, start, length=max_episode_length)[1]


def _sizes(recording: Recording) -> dict[str, int]:
    """Bytes by path and by field."""
    parts = {
        field.name: getattr(recording, field.name)
        for field in dataclasses.fields(recording)
        if field.name != "activations"
    }
    return {
        name: sum(_bytes(leaf) for leaf in jtu.tree_leaves(tree))
        for name, tree in (recording.activations | parts).items()
    }


def _bytes(leaf: Any) -> int:
    shaped = cast(jax.ShapeDtypeStruct, leaf)
    return int(np.prod(shaped.shape, dtype=np.int64)) * shaped.dtype.itemsize
