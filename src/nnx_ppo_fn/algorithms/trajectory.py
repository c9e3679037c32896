"""Plays one episode and keeps every state of it, to be drawn."""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any, cast, final

import equinox as eqx
import jax
import jax.tree_util as jtu
import numpy as np
from jaxtyping import Array, Bool, Key, UInt8

from .._custom_types import PyTree
from .._expect import expect_count
from .._failures import name_of
from .._keys import derive, expect_key
from .._tree import is_key
from ..envs import EnvState, episode_flags, RLEnv
from ..networks.types import AnyModule
from .checks import check_acting, InvalidEnvironmentError
from .compiled import compiled
from .environments import reset_one, step_one
from .types import StaticHalf


# Steps between two looks of the host: few enough that little is played in vain after
# an episode's end and that states of simulators fit, enough that looking costs little.
_STEPS_PER_CALL = 64


@final
@dataclasses.dataclass(frozen=True)
class Trajectory:
    """One episode.

    - `states`: of the environment, after the reset and after every step: `length + 1`
      of them. NumPy arrays without a batch axis; keys remain what they are.
    - `episode_reward`: the sum of all rewards.
    - `length`: steps.
    - `truncated`: whether a time limit of the environment ended it. An episode that was
      left after the steps asked for has not ended at all.
    """

    states: list[EnvState]
    episode_reward: float
    length: int
    truncated: bool

    def frames(
        self, env: Any, *, height: int = 240, width: int = 320
    ) -> UInt8[np.ndarray, "frames {height} {width} 3"]:
        """Draws every state.

        **Arguments:**

        - `env`: the environment. Its method `render(trajectory, height=..., width=...)`
          returns one picture per state.
        - `height`, `width`: of a picture, in pixels.

        **Returns:**

        Red, green and blue, `[length + 1, height, width, 3]`.

        **Raises:**

        `InvalidEnvironmentError` where the environment cannot draw itself, or draws
        something else.
        """
        expect_drawable(env)
        drawn = env.render(self.states, height=height, width=width)
        shape = (len(self.states), height, width, 3)
        frames = _stacked(drawn)
        if frames is None or frames.dtype != np.uint8 or frames.shape != shape:
            raise InvalidEnvironmentError(
                f"expected {name_of(env)}.render to return uint8 {list(shape)}, "
                f"got {_described(drawn, frames)}"
            )
        return frames


def record_episode(
    env: RLEnv,
    network: AnyModule,
    *,
    key: Key[Array, ""],
    max_episode_length: int,
    deterministic: bool = True,
) -> Trajectory:
    """Plays one episode from its start, with a fresh carry.

    It is the episode that `evaluate` plays in an environment with this key; the first
    one of `evaluate(..., key=key)` has the key `jax.random.fold_in(key, 0)`.

    **Arguments:**

    - `env`: the environment.
    - `network`: the policy.
    - `key`: of the start and of the network's noise.
    - `max_episode_length`: steps after which the episode is left.
    - `deterministic`: whether the network runs in inference mode, without noise and
      with its likeliest actions.

    **Returns:**

    A `Trajectory`.

    **Raises:**

    `InvalidEnvironmentError` or `CompositionError` where environment and network do
    not fit, `ValueError` or `TypeError` for other arguments that are not as said.
    """
    expect_key(key)
    expect_count("max_episode_length", max_episode_length, least=1)
    if deterministic:
        network = eqx.nn.inference_mode(network)
    states, truncated = _play(env, network, key, max_episode_length)
    # The reward of a reset belongs to no step.
    rewards = [jtu.tree_leaves(state.reward) for state in states[1:]]
    return Trajectory(
        states=states,
        episode_reward=math.fsum(float(leaf) for leaves in rewards for leaf in leaves),
        length=len(rewards),
        truncated=truncated,
    )


def expect_drawable(env: Any) -> None:
    """Raises `InvalidEnvironmentError` unless an environment has a `render`."""
    if not callable(getattr(env, "render", None)):
        raise InvalidEnvironmentError(
            f"{name_of(env)} cannot draw itself: it has no method "
            "render(trajectory, *, height, width) that returns one uint8 picture "
            "[height, width, 3] per state"
        )


def _stacked(drawn: Any) -> np.ndarray | None:
    """Pictures as one array, `None` where they do not make one."""
    try:
        return np.stack([np.asarray(picture) for picture in drawn])
    except (TypeError, ValueError):
        return None


def _described(drawn: Any, stacked: np.ndarray | None) -> str:
    """What an environment drew, for an error message."""
    if stacked is not None:
        return f"{stacked.dtype} {list(stacked.shape)}"
    if not isinstance(drawn, Sequence):
        return type(drawn).__name__
    pictures = cast(Sequence[Any], drawn)
    shapes = dict.fromkeys(str(list(np.shape(picture))) for picture in pictures)
    return f"pictures of the shapes {', '.join(shapes)}" if shapes else "no pictures"


def _play(
    env: RLEnv, network: AnyModule, key: Key[Array, ""], max_episode_length: int
) -> tuple[list[EnvState], bool]:
    """All states on the host, and whether a time limit ended them."""
    arrays, static = eqx.filter(network, eqx.is_array), StaticHalf.of(network)
    begin, go_on = (compiled(part, static=(0, 2)) for part in (_begin, _go_on))
    state, carry = begin(env, arrays, static, key)
    states: list[EnvState] = [_on_host(state)]
    while True:
        state, carry, played = go_on(env, arrays, static, state, carry)
        rows, done, truncated = _on_host(played)
        for index in range(_STEPS_PER_CALL):
            states.append(_row(rows, index))
            if done[index] or len(states) > max_episode_length:
                return states, bool(truncated[index])


def _begin(
    env: RLEnv, arrays: PyTree, static: StaticHalf, key: Key[Array, ""]
) -> tuple[Any, PyTree]:
    """The environment's first state, and a carry `[1, ...]`."""
    network: AnyModule = eqx.combine(arrays, static.tree)
    check_acting(env, network)
    carry = network.initialize_state(derive(key, "network")[None])
    return reset_one(env, derive(key, "environment")), carry


def _go_on(
    env: RLEnv, arrays: PyTree, static: StaticHalf, env_state: PyTree, carry: PyTree
) -> tuple[Any, PyTree, tuple[Any, Bool[Array, " T"], Bool[Array, " T"]]]:
    """Some steps: the last state and carry, and `(states, done, truncated)` of all."""
    network: AnyModule = eqx.combine(arrays, static.tree)

    def step(now: tuple[Any, PyTree], _: None) -> tuple[tuple[Any, PyTree], Any]:
        state, carry = now
        observation = jtu.tree_map(lambda leaf: leaf[None], state.obs)
        decided = network(carry, observation)
        action = jtu.tree_map(lambda leaf: leaf[0], decided.output.actions)
        stepped = step_one(env, state, action)
        return (stepped, decided.next_state), (stepped, *episode_flags(stepped))

    (env_state, carry), played = jax.lax.scan(
        step, (env_state, carry), length=_STEPS_PER_CALL
    )
    return env_state, carry, played


def _row(tree: PyTree, index: int) -> Any:
    """One row of every leaf. With `...`, single numbers remain arrays."""
    return jtu.tree_map(lambda leaf: leaf[index, ...], tree)


def _on_host(tree: PyTree) -> Any:
    """Arrays become NumPy's; random keys, which NumPy cannot hold, stay."""
    return jtu.tree_map(
        lambda leaf: leaf if is_key(leaf) else np.asarray(leaf), jax.device_get(tree)
    )
