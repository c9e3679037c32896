"""From the name of an environment to everything that `train_ppo` takes."""

import dataclasses
from typing import Any, final

import equinox as eqx
from jaxtyping import Array, Key

from ..algorithms.config import Scalar, TrainConfig
from ..algorithms.tolerance import replay_tolerance
from ..envs.registry import make
from ..envs.types import DescribedEnv, RLEnv
from ..networks._trainable import partition_trainable
from ..networks.factories import (
    make_mlp_actor_critic,
    make_recurrent_actor_critic,
    make_variational_actor_critic,
)
from ..networks.types import StatefulModule
from ..wrappers.reward_scaling_wrapper import RewardScalingWrapper
from .measured import preset
from .options import changed, expect_policy, NetworkOptions, Preset


_EVALUATIONS = 20

# About a second on two cores: as long as Ctrl-C and the progress bar have to wait.
_STEPS_PER_CALL = 65_536


@final
class Setup(eqx.Module):
    """What `train_ppo` takes.

    - `train_env`, `eval_env`: the environment with scaled rewards, and as it is.
    - `network`: freshly initialised.
    - `config`: the whole run.
    - `preset`: what all of it was built from.
    """

    train_env: RLEnv
    eval_env: DescribedEnv
    network: StatefulModule[Any, Any, Any]
    config: TrainConfig
    preset: Preset

    @property
    def whole_budget(self) -> int:
        """The step budget, filled up to whole iterations."""
        per_iteration = self.config.ppo.steps_per_iteration
        return -(-self.config.ppo.total_steps // per_iteration) * per_iteration

    @property
    def replay_tolerance(self) -> float:
        """The largest `replay/log_ratio_max` with which this training goes on."""
        parameters, _ = partition_trainable(self.network)
        return float(replay_tolerance(self.config.ppo, parameters))


def build(
    env_name: str,
    policy: str,
    *,
    key: Key[Array, ""],
    settings: Preset | None = None,
    seed: Scalar | None = None,
    total_steps: int | None = None,
    n_envs: int | None = None,
    learning_rate: Scalar | None = None,
    every_steps: int | None = None,
    max_episode_length: int | None = None,
    iterations_per_call: int | None = None,
) -> Setup:
    """Everything that a training run needs.

    **Arguments:**

    - `env_name`: a name that `nnx_ppo_fn.envs.make` accepts.
    - `policy`: one of `POLICIES`.
    - `key`: draws the initial weights.
    - `settings`: instead of the environment's preset.
    - `seed`: of everything random in the training itself.
    - `total_steps`: environment steps of the whole training, over all environments.
    - `n_envs`: environments side by side, a multiple of the number of minibatches.
    - `learning_rate`: of Adam, at the start.
    - `every_steps`: environment steps between evaluations; about a twentieth of the
      training by default.
    - `max_episode_length`: steps after which an evaluation leaves an episode; the
      environment's own limit by default.
    - `iterations_per_call`: the most iterations in one compiled call; by default about
      a second's, so that evaluations fall on the ends of calls.

    **Returns:**

    A `Setup`; `train_ppo(setup.train_env, setup.network, setup.config,
    eval_env=setup.eval_env)` trains it.

    **Raises:**

    - `ValueError` if a name is unknown or a number cannot be trained with.
    - `ImportError` if the environment needs an extra that is not installed.
    """
    expect_policy(policy)
    settings = preset(env_name) if settings is None else settings
    env = make(env_name)
    config = changed(
        settings.config,
        seed=seed,
        ppo=changed(
            settings.config.ppo,
            total_steps=total_steps,
            n_envs=n_envs,
            learning_rate=learning_rate,
        ),
    )
    config = _with_intervals(
        config, env, every_steps, max_episode_length, iterations_per_call
    )
    return Setup(
        train_env=_scaled(env, settings.reward_scale),
        eval_env=env,
        network=build_network(env, policy, settings.network, key=key),
        config=config,
        preset=dataclasses.replace(settings, config=config),
    )


def build_network(
    env: DescribedEnv, policy: str, options: NetworkOptions, *, key: Key[Array, ""]
) -> StatefulModule[Any, Any, Any]:
    """A fresh network for an environment.

    **Arguments:**

    - `env`: says what observations and actions are like.
    - `policy`: one of `POLICIES`.
    - `options`: the size and the make-up.
    - `key`: draws the initial weights.

    **Raises:**

    `ValueError` if there is no such policy.
    """
    shared: dict[str, Any] = {
        "key": key,
        "activation": options.activation,
        "entropy_weight": options.entropy_weight,
        "min_std": options.min_std,
        "policy_scale": options.policy_scale,
        "env": env,
    }
    hidden = [options.hidden_size]
    match expect_policy(policy):
        case "mlp":
            return make_mlp_actor_critic(
                actor_hidden_sizes=2 * hidden, critic_hidden_sizes=2 * hidden, **shared
            )
        case "variational":
            return make_variational_actor_critic(
                latent_size=options.latent_size,
                kl_weight=options.kl_weight,
                encoder_sizes=hidden,
                head_sizes=hidden,
                **shared,
            )
        case cell:
            return make_recurrent_actor_critic(
                cell=cell,
                hidden_features=options.hidden_size,
                head_sizes=hidden,
                **shared,
            )


def options_in_use(
    env: DescribedEnv, policy: str, options: NetworkOptions
) -> dict[str, Any]:
    """Those of the options, by name, that `build_network` reads for a policy."""
    unused: set[str] = set()
    if policy != "variational":
        unused |= {"latent_size", "kl_weight"}
    if env.discrete:
        unused |= {"min_std"}
    names = [field.name for field in dataclasses.fields(options)]
    return {name: getattr(options, name) for name in names if name not in unused}


def _scaled(env: RLEnv, reward_scale: float) -> RLEnv:
    """The environment that training sees: wrapped only where the scale is not 1."""
    return env if reward_scale == 1.0 else RewardScalingWrapper(env, reward_scale)


def _with_intervals(
    config: TrainConfig,
    env: DescribedEnv,
    every_steps: int | None,
    max_episode_length: int | None,
    iterations_per_call: int | None,
) -> TrainConfig:
    """Decides how often to evaluate, and how often to come back to the host."""
    per_iteration = config.ppo.steps_per_iteration
    longest = min(config.iterations_per_call, max(_STEPS_PER_CALL // per_iteration, 1))
    wanted = max(-(-config.ppo.total_steps // (_EVALUATIONS * per_iteration)), 1)
    per_call = min(longest, wanted)
    if iterations_per_call is not None:
        per_call = iterations_per_call
    calls = -(-wanted // max(per_call, 1))
    return changed(
        config,
        iterations_per_call=per_call,
        eval=changed(
            changed(
                config.eval,
                every_steps=calls * per_call * per_iteration,
                max_episode_length=env.max_episode_length,
            ),
            every_steps=every_steps,
            max_episode_length=max_episode_length,
        ),
    )
