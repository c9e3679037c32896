import dataclasses

import jax.random as jr
import numpy as np
import pytest

from nnx_ppo_fn.algorithms.checks import check_training
from nnx_ppo_fn.algorithms.types import own
from nnx_ppo_fn.envs import CartPole, make, UnknownEnvironmentError
from nnx_ppo_fn.presets import build, NetworkOptions, POLICIES, preset


ENVIRONMENTS = ("cartpole", "hidden-cartpole", "pendulum", "probe:memory")


@pytest.mark.parametrize("env_name", [*ENVIRONMENTS, "gymnax:MemoryChain-bsuite"])
def test_budgets_are_whole_iterations(env_name):
    ppo = preset(env_name).config.ppo
    assert ppo.total_steps % ppo.steps_per_iteration == 0


def test_cartpole_has_the_settings_that_are_known_to_work():
    settings = preset("hidden-cartpole")
    ppo = settings.config.ppo
    assert (ppo.n_envs, ppo.rollout_length) == (64, 64)
    assert (ppo.n_epochs, ppo.n_minibatches) == (4, 4)
    assert (ppo.learning_rate, ppo.learning_rate_final_fraction) == (1e-3, 0.02)
    assert (ppo.discounting_factor, ppo.gae_lambda) == (0.99, 0.95)
    assert settings.reward_scale == 0.1


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("env_name", ["hidden-cartpole", "pendulum"])
def test_what_is_built_fits_together(env_name, policy, getkey):
    setup = build(env_name, policy, key=getkey())
    check_training(setup.train_env, own(setup.network))


def test_only_training_sees_scaled_rewards(getkey):
    setup = build("cartpole", "mlp", key=getkey())
    key = getkey()
    assert setup.eval_env == CartPole()
    assert setup.eval_env.step(setup.eval_env.reset(key), 0).reward == 1.0
    scaled = setup.train_env.step(setup.train_env.reset(key), 0).reward
    np.testing.assert_allclose(scaled, 0.1, rtol=1e-6)


def test_rewards_at_scale_1_are_not_wrapped(getkey):
    setup = build("probe:action", "mlp", key=getkey())
    assert setup.train_env == setup.eval_env == make("probe:action")


def test_a_policy_begins_nearly_uniform(getkey):
    setup = build("cartpole", "lstm", key=getkey())
    observation = 10.0 * jr.normal(getkey(), (16, 4))
    carry = setup.network.initialize_state(jr.split(getkey(), 16))
    decided = setup.network(carry, observation).output
    np.testing.assert_allclose(decided.loglikelihoods, np.log(0.5), atol=0.02)


def test_overrides(getkey):
    setup = build(
        "cartpole",
        "mlp",
        key=getkey(),
        total_steps=20_480,
        n_envs=8,
        learning_rate=3e-4,
        seed=5,
    )
    ppo = setup.config.ppo
    assert (ppo.total_steps, ppo.n_envs, ppo.learning_rate) == (20_480, 8, 3e-4)
    assert setup.config.seed == 5
    # 20 evaluations would be one every 1024 steps: two iterations of 8 x 64.
    assert setup.config.eval.every_steps == 1024
    assert setup.config.eval.max_episode_length == 500
    assert setup.preset.config == setup.config
    unchanged = dataclasses.replace(ppo, total_steps=491_520, n_envs=64)
    expected = preset("cartpole").config.ppo
    assert dataclasses.replace(unchanged, learning_rate=1e-3) == expected


@pytest.mark.parametrize(
    ("n_envs", "iterations", "per_call", "per_evaluation"),
    [
        (64, 120, 6, 6),
        # Ten million steps: an evaluation every 123 iterations would not be at the end
        # of a call of 16.
        (64, 2442, 16, 128),
        (8, 20_000, 16, 1008),
        # 65,536 steps a call at most.
        (512, 200, 2, 10),
        (4096, 200, 1, 10),
    ],
)
def test_calls_are_short_and_evaluations_end_them(
    n_envs, iterations, per_call, per_evaluation, getkey
):
    per_iteration = n_envs * 64
    total_steps = iterations * per_iteration
    setup = build(
        "cartpole", "mlp", key=getkey(), total_steps=total_steps, n_envs=n_envs
    )
    assert setup.config.iterations_per_call == per_call
    assert setup.config.eval.every_steps == per_evaluation * per_iteration
    assert setup.whole_budget == total_steps


def test_intervals_that_are_given_stay(getkey):
    setup = build(
        "cartpole",
        "mlp",
        key=getkey(),
        every_steps=5,
        max_episode_length=70,
        iterations_per_call=3,
    )
    evaluation = setup.config.eval
    assert (evaluation.every_steps, evaluation.max_episode_length) == (5, 70)
    assert setup.config.iterations_per_call == 3


def test_settings_replace_the_preset(getkey):
    settings = preset("cartpole")
    settings = dataclasses.replace(settings, reward_scale=0.5)
    setup = build("cartpole", "mlp", key=getkey(), settings=settings)
    assert setup.train_env.reward_scale == 0.5


def test_a_budget_is_filled_up_to_whole_iterations(getkey):
    setup = build("cartpole", "mlp", key=getkey(), total_steps=4097)
    assert setup.whole_budget == 2 * 64 * 64


def test_evaluations_are_not_more_frequent_than_iterations(getkey):
    setup = build("cartpole", "mlp", key=getkey(), total_steps=5000)
    assert setup.config.eval.every_steps == 64 * 64


@pytest.mark.parametrize(
    ("env_name", "policy", "error", "hint"),
    [
        ("cartpole", "lstn", ValueError, "did you mean 'lstm'"),
        (
            "cartpole",
            "",
            ValueError,
            "gru, lru, min_gru, attention, variational",
        ),
        ("cartpol", "lstm", UnknownEnvironmentError, "did you mean 'cartpole'"),
    ],
)
def test_unknown_names(env_name, policy, error, hint, getkey):
    with pytest.raises(error, match=hint):
        build(env_name, policy, key=getkey())


def test_batches_that_cannot_be_divided(getkey):
    with pytest.raises(ValueError, match="n_envs=6 cannot be divided"):
        build("cartpole", "lstm", key=getkey(), n_envs=6)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"hidden_size": 0}, "hidden_size must be at least 1"),
        ({"latent_size": -3}, "latent_size must be at least 1"),
        ({"kl_weight": np.nan}, "kl_weight must be in"),
        ({"entropy_weight": np.inf}, "entropy_weight must be in"),
        ({"min_std": -1.0}, "min_std must be in"),
        ({"policy_scale": np.nan}, "policy_scale must be in"),
    ],
)
def test_networks_that_cannot_be_built_are_refused(change, message):
    with pytest.raises(ValueError, match=message):
        NetworkOptions(**change)


@pytest.mark.parametrize("scale", [0.0, -1.0, 1e-320, np.inf, np.nan])
def test_rewards_can_be_scaled_back(scale):
    with pytest.raises(ValueError, match="reward_scale must be in"):
        dataclasses.replace(preset("cartpole"), reward_scale=scale)
