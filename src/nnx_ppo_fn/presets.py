"""Settings that are known to work, one set per environment.

The memory-less and the recurrent policies of an environment share sizes, settings and
budget, so that a difference between their learning curves is a difference between
the policies. The command line and the tests start from `build`.
"""

import dataclasses
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any, final, Literal, TypeAlias

import equinox as eqx
from jaxtyping import Array, Key

from .algorithms.config import (
    EvalConfig,
    LoggingLevel,
    PPOConfig,
    Scalar,
    TrainConfig,
)
from .algorithms.tolerance import replay_tolerance
from .envs.registry import make
from .envs.types import DescribedEnv, RLEnv
from .networks._trainable import partition_trainable
from .networks.factories import (
    make_mlp_actor_critic,
    make_recurrent_actor_critic,
    make_variational_actor_critic,
)
from .networks.types import StatefulModule
from .wrappers.reward_scaling_wrapper import RewardScalingWrapper


Policy: TypeAlias = Literal["mlp", "lstm", "gru", "variational"]
"""The kinds of network that `build` knows."""

POLICIES: tuple[Policy, ...] = ("mlp", "lstm", "gru", "variational")
"""All of them."""

_EVALUATIONS = 20

# About a second on two cores: as long as Ctrl-C and the progress bar have to wait.
_STEPS_PER_CALL = 65_536


@final
class NetworkOptions(eqx.Module):
    """The size and the make-up of a preset's network.

    - `hidden_size`: features of every hidden layer, of a memory and of its heads.
    - `latent_size`: latents of the variational policy's bottleneck.
    - `kl_weight`: what the bottleneck pays for a nat of information.
    - `activation`: of the hidden layers, by name.
    - `entropy_weight`: how much the sampler's entropy is rewarded.
    - `min_std`: the smallest standard deviation of a continuous action.
    - `policy_scale`: scale of the initial weights of the layer in front of the
      sampler; a small one begins with nearly uniform actions.
    """

    hidden_size: int = eqx.field(static=True, default=64)
    latent_size: int = eqx.field(static=True, default=16)
    kl_weight: float = 1e-3
    activation: str = eqx.field(static=True, default="tanh")
    entropy_weight: float = 0.01
    min_std: float = 0.1
    policy_scale: float = 0.01


@final
class Preset(eqx.Module):
    """How to train on one environment.

    - `config`: the whole run.
    - `network`: options of the policy.
    - `reward_scale`: the factor on the rewards that training sees; evaluation sees
      them as they are.
    """

    config: TrainConfig
    network: NetworkOptions
    reward_scale: float


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
    def steps_per_call(self) -> int:
        """Environment steps between two looks of the host; evaluations are at some."""
        return self.config.iterations_per_call * self.config.ppo.steps_per_iteration

    @property
    def replay_tolerance(self) -> float:
        """The largest `replay/log_ratio_max` with which this training goes on."""
        parameters, _ = partition_trainable(self.network)
        return float(replay_tolerance(self.config.ppo, parameters))


_PPO = PPOConfig(
    n_envs=64,
    rollout_length=64,
    total_steps=491_520,
    gae_lambda=0.95,
    discounting_factor=0.99,
    clip_range=0.2,
    learning_rate=1e-3,
    learning_rate_final_fraction=0.02,
    adam_epsilon=1e-5,
    n_epochs=4,
    n_minibatches=4,
    critic_loss_weight=0.5,
    gradient_clipping=0.5,
    logging_level=LoggingLevel.LOSSES | LoggingLevel.THROUGHPUT,
)

_DEFAULT = Preset(TrainConfig(ppo=_PPO), NetworkOptions(), reward_scale=1.0)

# Balancing for 500 steps is worth about 100 at a discount of 0.99: a critic learns
# that much faster as 10.
_CARTPOLE = dataclasses.replace(_DEFAULT, reward_scale=0.1)

_PENDULUM = Preset(
    TrainConfig(
        ppo=dataclasses.replace(_PPO, total_steps=778_240, discounting_factor=0.95)
    ),
    NetworkOptions(entropy_weight=1e-3),
    reward_scale=0.1,
)

_MEMORY_CHAIN = Preset(
    TrainConfig(
        ppo=dataclasses.replace(
            _PPO, total_steps=102_400, rollout_length=32, critic_loss_weight=1.0
        ),
        # An episode earns 1 or -1, so the mean of 64 would be off by 0.1 by chance.
        eval=EvalConfig(n_envs=1024),
    ),
    NetworkOptions(),
    reward_scale=1.0,
)

_PRESETS: Mapping[str, Preset] = {
    "cartpole": _CARTPOLE,
    "hidden-cartpole": _CARTPOLE,
    "gymnax:CartPole-v1": _CARTPOLE,
    "pendulum": _PENDULUM,
    "gymnax:Pendulum-v1": _PENDULUM,
    "gymnax:MemoryChain-bsuite": _MEMORY_CHAIN,
}


def preset(env_name: str, policy: str) -> Preset:
    """The settings for a policy in an environment.

    **Arguments:**

    - `env_name`: a name that `nnx_ppo_fn.envs.make` accepts. One without settings of
      its own gets the defaults.
    - `policy`: one of `POLICIES`.

    **Returns:**

    Settings that are the same for all of an environment's policies.

    **Raises:**

    `ValueError` if there is no such policy.
    """
    _expect_policy(policy)
    return _PRESETS.get(env_name, _DEFAULT)


def build(
    env_name: str,
    policy: str,
    *,
    key: Key[Array, ""],
    total_steps: int | None = None,
    n_envs: int | None = None,
    learning_rate: Scalar | None = None,
    seed: Scalar | None = None,
) -> Setup:
    """Everything that a training run needs.

    **Arguments:**

    - `env_name`: a name that `nnx_ppo_fn.envs.make` accepts.
    - `policy`: one of `POLICIES`.
    - `key`: draws the initial weights.
    - `total_steps`: environment steps of the whole training, over all environments.
    - `n_envs`: environments side by side, a multiple of the number of minibatches.
    - `learning_rate`: of Adam, at the start.
    - `seed`: of everything random in the training itself.

    What is left `None` comes from the preset. About 20 evaluations divide the training
    evenly, and fall on the ends of compiled calls of `Setup.steps_per_call` steps.

    **Returns:**

    A `Setup`; `train_ppo(setup.train_env, setup.network, setup.config,
    eval_env=setup.eval_env)` trains it.

    **Raises:**

    - `ValueError` if a name is unknown or a number cannot be trained with.
    - `ImportError` if the environment needs an extra that is not installed.
    """
    settings = preset(env_name, policy)
    env = make(env_name)
    changes: dict[str, Any] = {
        "total_steps": total_steps,
        "n_envs": n_envs,
        "learning_rate": learning_rate,
    }
    ppo = dataclasses.replace(
        settings.config.ppo,
        **{name: value for name, value in changes.items() if value is not None},
    )
    config = dataclasses.replace(
        _with_intervals(dataclasses.replace(settings.config, ppo=ppo), env),
        seed=settings.config.seed if seed is None else seed,
    )
    return Setup(
        train_env=scale_rewards(env, settings.reward_scale),
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

    - `env`: says the sizes of observations and actions.
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
        "discrete": env.discrete,
    }
    sizes = (env.observation_size, env.action_size)
    hidden = [options.hidden_size]
    match _expect_policy(policy):
        case "mlp":
            return make_mlp_actor_critic(*sizes, 2 * hidden, 2 * hidden, **shared)
        case "variational":
            return make_variational_actor_critic(
                *sizes,
                latent_size=options.latent_size,
                kl_weight=options.kl_weight,
                encoder_sizes=hidden,
                head_sizes=hidden,
                **shared,
            )
        case cell:
            return make_recurrent_actor_critic(
                *sizes,
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


def scale_rewards(env: RLEnv, reward_scale: float) -> RLEnv:
    """The environment that training sees: wrapped only where the scale is not 1."""
    return env if reward_scale == 1.0 else RewardScalingWrapper(env, reward_scale)


def _with_intervals(config: TrainConfig, env: DescribedEnv) -> TrainConfig:
    """Decides how often to evaluate, and how often to come back to the host."""
    per_iteration = config.ppo.steps_per_iteration
    longest = min(config.iterations_per_call, max(_STEPS_PER_CALL // per_iteration, 1))
    wanted = max(-(-config.ppo.total_steps // (_EVALUATIONS * per_iteration)), 1)
    per_call = min(longest, wanted)
    calls = -(-wanted // per_call)
    evaluation = dataclasses.replace(
        config.eval,
        every_steps=calls * per_call * per_iteration,
        max_episode_length=env.max_episode_length or config.eval.max_episode_length,
    )
    return dataclasses.replace(config, eval=evaluation, iterations_per_call=per_call)


def _expect_policy(policy: str) -> Policy:
    if policy in POLICIES:
        return policy
    matches = get_close_matches(policy, POLICIES, n=1, cutoff=0.4)
    hint = f" Did you mean {matches[0]!r}?" if matches else ""
    raise ValueError(
        f"There is no policy {policy!r}.{hint} The policies are: {', '.join(POLICIES)}."
    )
