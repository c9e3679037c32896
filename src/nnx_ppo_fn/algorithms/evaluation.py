"""Plays whole episodes and says how they went."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.tree_util as jtu
from jaxtyping import Array, Key

from .._custom_types import PyTree
from .._expect import expect_count
from .._keys import derive, expect_key, one_per_environment
from ..envs import episode_flags, RLEnv
from ..networks.types import AnyModule
from .checks import check_acting
from .compiled import compiled
from .environments import reset_all, step_all
from .metrics import summarize
from .rollout import total_reward
from .types import StaticHalf


def evaluate(
    env: RLEnv,
    network: AnyModule,
    *,
    key: Key[Array, ""],
    n_envs: int,
    max_episode_length: int,
    deterministic: bool = True,
    percentiles: tuple[int, ...] | None = None,
) -> dict[str, Array]:
    """Runs one episode in each of `n_envs` fresh environments.

    **Arguments:**

    - `env`: the environment.
    - `network`: the policy, with a fresh carry for each episode.
    - `key`: of the starts and of the network's noise.
    - `n_envs`: episodes.
    - `max_episode_length`: steps after which an episode is left.
    - `deterministic`: whether the network runs in inference mode, without noise and
      with its likeliest actions.
    - `percentiles`: also summed up, such as `(0, 50, 100)`.

    **Returns:**

    `eval/episode_reward/mean` and `/std` over episodes (and per kind of reward, if
    there are several), `eval/lifespan/mean` and `/std` in steps, and
    `eval/truncated`, the fraction of episodes that a time limit ended.

    **Raises:**

    `InvalidEnvironmentError` or `CompositionError` where environment and network do
    not fit, `ValueError` or `TypeError` for other arguments that are not as said.
    """
    expect_key(key)
    expect_count("n_envs", n_envs, least=1)
    expect_count("max_episode_length", max_episode_length, least=1)
    if deterministic:
        network = eqx.nn.inference_mode(network)
    run = compiled(_evaluate, static=(0, 2, 4, 5, 6))
    return run(
        env,
        eqx.filter(network, eqx.is_array),
        StaticHalf.of(network),
        key,
        n_envs,
        max_episode_length,
        percentiles,
    )


def _evaluate(
    env: RLEnv,
    arrays: PyTree,
    static: StaticHalf,
    key: Key[Array, ""],
    n_envs: int,
    max_episode_length: int,
    percentiles: tuple[int, ...] | None,
) -> dict[str, Array]:
    network: AnyModule = eqx.combine(arrays, static.tree)
    check_acting(env, network)
    keys = one_per_environment(key, n_envs)
    env_state = reset_all(env, derive(keys, "environment"))
    zeros = jnp.zeros(n_envs, jnp.float32)
    start: dict[str, Any] = {
        "step": jnp.int32(0),
        "env_state": env_state,
        "carry": network.initialize_state(derive(keys, "network")),
        "alive": jnp.ones(n_envs, jnp.bool_),
        "truncated": jnp.zeros(n_envs, jnp.bool_),
        "lifespan": jnp.zeros(n_envs, jnp.int32),
        "reward": jtu.tree_map(lambda _: zeros, env_state.reward),
    }

    def unfinished(now: dict[str, Any]) -> Array:
        return (now["step"] < max_episode_length) & jnp.any(now["alive"])

    def step(now: dict[str, Any]) -> dict[str, Any]:
        alive = now["alive"]
        decided = network(now["carry"], now["env_state"].obs)
        stepped = step_all(env, now["env_state"], decided.output.actions)
        done, truncated = episode_flags(stepped)
        return {
            "step": now["step"] + 1,
            "env_state": stepped,
            "carry": decided.next_state,
            "alive": alive & ~done,
            "truncated": now["truncated"] | (alive & truncated),
            "lifespan": now["lifespan"] + alive.astype(jnp.int32),
            "reward": jtu.tree_map(
                lambda sum_, reward: (
                    sum_ + jnp.where(alive, reward.astype(jnp.float32), 0)
                ),
                now["reward"],
                stepped.reward,
            ),
        }

    end = jax.lax.while_loop(unfinished, step, start)
    metrics: dict[str, Array] = {
        "eval/truncated": jnp.mean(end["truncated"], dtype=jnp.float32)
    }
    totals = {
        "eval/episode_reward": total_reward(end["reward"]),
        "eval/lifespan": end["lifespan"],
    }
    if isinstance(end["reward"], dict):
        totals |= {f"eval/episode_reward/{k}": v for k, v in end["reward"].items()}
    for name, value in totals.items():
        metrics |= summarize(name, value)
        if percentiles:
            metrics |= summarize(name, value, percentiles)
    return metrics
