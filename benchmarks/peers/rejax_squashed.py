"""rejax's PPO with the policy of the other libraries in the place of its own."""

from importlib import import_module
from typing import Any

import flax.linen as linen
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from gymnax.environments import spaces

from nnx_ppo_fn import PPOConfig

from ..networks import MIN_STD, TOWERS
from ..playing import Policy
from ..ring import ACTION_SIZE
from .borders import as_released
from .rejax_ppo import create, Ring, train


# By name, since whoever checks types may have to do without it.
_DISTRAX: Any = import_module("distrax")


class _SquashedRing(Ring):
    """Takes actions before they are squashed: these are what rejax stores."""

    def action_space(self, params: Any) -> Any:
        del params
        return spaces.Box(-np.inf, np.inf, (ACTION_SIZE,))

    def step(self, key: Any, state: Any, action: Any, params: Any) -> Any:
        return super().step(key, state, jnp.tanh(action), params)


class _SquashedPolicy(linen.Module):
    """A normal distribution, all of it out of the observation, and squashed."""

    @linen.compact
    def __call__(self, obs: Any, rng: Any = None) -> Any:
        """The distribution before it is squashed; rejax initialises with a key."""
        del rng
        for size in TOWERS:
            obs = linen.relu(linen.Dense(size)(obs))
        mean, raw = jnp.split(linen.Dense(2 * ACTION_SIZE)(obs), 2, axis=-1)
        return _DISTRAX.MultivariateNormalDiag(mean, jax.nn.softplus(raw) + MIN_STD)

    def action_log_prob(self, obs: Any, rng: Any) -> tuple[Any, Any]:
        """What rejax collects with."""
        normal = self(obs)
        action = normal.sample(seed=rng)
        return action, normal.log_prob(action) - _log_stretch(action)

    def log_prob_entropy(self, obs: Any, action: Any) -> tuple[Any, Any]:
        """What rejax learns from.

        It gives no key for a sample, so the noise in the entropy is the same each time.
        """
        normal = self(obs)
        log_likelihood = normal.log_prob(action) - _log_stretch(action)
        sample = normal.sample(seed=jr.key(0))
        return log_likelihood, normal.entropy() + _log_stretch(sample)


def _log_stretch(action: Any) -> Any:
    """By how much tanh stretches the space around an action, as a logarithm."""
    by_component = 2 * (jnp.log(2.0) - action - jax.nn.softplus(-2 * action))
    return jnp.sum(by_component, axis=-1)


@as_released()
def learn(config: PPOConfig, seed: int) -> Policy:
    """The squashed mean after a training."""
    algorithm = create(config, _SquashedRing()).replace(actor=_SquashedPolicy())
    state = train(algorithm, config, seed)

    @as_released()
    def policy(observations: Any) -> Any:
        seen = algorithm.normalize_obs(state.obs_rms_state, observations)
        return jnp.tanh(algorithm.actor.apply(state.actor_ts.params, seen).mean())

    return policy
