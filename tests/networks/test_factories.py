import dataclasses
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import jaxtyping
import numpy as np
import pytest

from nnx_ppo_fn.algorithms.checks import check_acting
from nnx_ppo_fn.envs import CartPole, Pendulum, State
from nnx_ppo_fn.networks._errors import CompositionError
from nnx_ppo_fn.networks._trainable import partition_trainable
from nnx_ppo_fn.networks.adapter import PPOAdapter
from nnx_ppo_fn.networks.attention import WindowedAttention
from nnx_ppo_fn.networks.containers import Sequential
from nnx_ppo_fn.networks.factories import (
    make_mlp,
    make_mlp_actor_critic,
    make_mlp_layers,
    make_recurrent_actor_critic,
    make_variational_actor_critic,
)
from nnx_ppo_fn.networks.feedforward import Dense
from nnx_ppo_fn.networks.linear_recurrent import LRU, MinGRU
from nnx_ppo_fn.networks.normalizer import Normalizer
from nnx_ppo_fn.networks.recurrent import GRU, LSTM
from nnx_ppo_fn.networks.sampling_layers import CategoricalSampler, NormalTanhSampler
from nnx_ppo_fn.networks.variational import VariationalBottleneck


KEY = jr.key(0)


def kinds(network):
    return [type(layer) for layer in network.layers]


def test_layers_of_an_mlp():
    layers = make_mlp_layers([3, 5, 4, 2], key=KEY, activation_last_layer=False)
    assert [(d.in_features, d.out_features) for d in layers] == [(3, 5), (5, 4), (4, 2)]
    assert [d.activation for d in layers] == [jax.nn.relu, jax.nn.relu, None]
    assert make_mlp_layers([3, 2], key=KEY)[0].activation is jax.nn.relu
    assert make_mlp_layers([3], key=KEY) == []


def test_dense_options_reach_every_layer_and_keys_differ():
    layers = make_mlp_layers([3, 3, 3], key=KEY, use_bias=False, activation="tanh")
    assert all(d.bias is None and d.activation is jnp.tanh for d in layers)
    assert not np.any(layers[0].kernel == layers[1].kernel)


def test_an_mlp_is_the_composition_of_its_layers(getkey):
    mlp = make_mlp([3, 4, 2], key=KEY, activation="swish", activation_last_layer=False)
    x = jr.normal(getkey(), (5, 3))
    first, last = (np.float64(layer.kernel) for layer in mlp.layers)
    hidden = np.float64(x) @ first
    expected = (hidden / (1 + np.exp(-hidden))) @ last
    np.testing.assert_allclose(mlp(((), ()), x).output, expected, rtol=1e-4, atol=1e-6)


def test_mlp_actor_critic_has_two_towers_on_one_observation():
    network = make_mlp_actor_critic(
        6, 2, [5, 4], [3], key=KEY, entropy_weight=0.5, min_std=0.2, std_scale=0.7
    )
    assert kinds(network) == [Normalizer, PPOAdapter]
    actor, critic = network[1].action, network[1].value
    assert kinds(actor) == [Dense, Dense, Dense, NormalTanhSampler]
    assert [d.out_features for d in actor.layers[:-1]] == [5, 4, 4]
    assert [d.activation is None for d in actor.layers[:-1]] == [False, False, True]
    assert [d.out_features for d in critic.layers] == [3, 1]
    assert [d.activation is None for d in critic.layers] == [False, True]
    sampler = actor[3]
    assert (sampler.entropy_weight, sampler.min_std, sampler.std_scale) == (
        0.5,
        0.2,
        0.7,
    )


def test_without_normaliser_the_adapter_stands_alone():
    network = make_mlp_actor_critic(6, 2, [], [], key=KEY, normalize_obs=False)
    assert isinstance(network, PPOAdapter)
    assert network.action[0].kernel.shape == (6, 4)


def test_discrete_policies_have_a_logit_per_action():
    for network in (
        make_mlp_actor_critic(6, 3, [4], [4], key=KEY, discrete=True),
        make_recurrent_actor_critic(6, 3, key=KEY, discrete=True),
        make_variational_actor_critic(6, 3, key=KEY, discrete=True),
    ):
        *_, policy, sampler = network[-1].action.layers
        assert policy.out_features == 3 and isinstance(sampler, CategoricalSampler)


@pytest.mark.parametrize("make", ["mlp", "recurrent", "variational"])
def test_standard_deviations_by_themselves_are_parameters_of_the_sampler(make):
    network = MAKERS[make](
        6, 2, key=KEY, state_independent_std=True, min_std=0.2, entropy_weight=0.5
    )
    *_, policy, sampler = network[-1].action.layers
    assert policy.out_features == 2
    np.testing.assert_array_equal(sampler.log_std, np.zeros(2))
    assert (sampler.min_std, sampler.entropy_weight) == (0.2, 0.5)
    parameters, _ = partition_trainable(network)
    assert parameters[-1].action[-1].log_std is not None
    # Choices have none.
    discrete = MAKERS[make](6, 2, key=KEY, state_independent_std=True, discrete=True)
    assert isinstance(discrete[-1].action[-1], CategoricalSampler)


def test_initial_kernels_are_uniform_with_the_scale_over_fan_in():
    network = make_mlp_actor_critic(
        300, 100, [200], [200], key=KEY, initializer_scale=0.5, policy_scale=0.01
    )
    hidden, policy = network[1].action.layers[:2]
    # A uniform distribution of variance v reaches to sqrt(3 v).
    for layer, fan_in, scale in [(hidden, 300, 1), (policy, 200, 0.01)]:
        limit = scale * (3 * 0.5 / fan_in) ** 0.5
        assert 0.99 * limit < np.max(np.abs(layer.kernel)) <= limit * 1.0001
        assert abs(np.std(layer.kernel) / (limit / 3**0.5) - 1) < 0.02


def test_orthogonal_kernels_on_request():
    network = make_mlp_actor_critic(
        8, 2, [8], [8], key=KEY, kernel_init=jax.nn.initializers.orthogonal(2**0.5)
    )
    for layer in (network[1].action[0], network[1].value[0]):
        kernel = np.float64(layer.kernel)
        np.testing.assert_allclose(kernel.T @ kernel, 2 * np.eye(8), atol=1e-5)


def test_no_two_layers_are_twins():
    network = make_mlp_actor_critic(4, 2, [4, 4], [4, 4], key=KEY)
    layers = [*network[1].action.layers[:2], *network[1].value.layers[:2]]
    kernels = [np.asarray(layer.kernel) for layer in layers]
    for i, one in enumerate(kernels):
        for other in kernels[:i]:
            assert not np.any(one == other)


@pytest.mark.parametrize(
    "name, kind", [("lstm", LSTM), ("gru", GRU), ("lru", LRU), ("min_gru", MinGRU)]
)
def test_recurrent_actor_critic_shares_a_memory(name, kind):
    network = make_recurrent_actor_critic(
        6, 2, key=KEY, cell=name, hidden_features=7, trainable_initial_state=True
    )
    assert kinds(network) == [Normalizer, kind, PPOAdapter]
    assert network[1].hidden_features == 7 and network[1].initial_state is not None
    assert network[2].action[0].kernel.shape == (7, 64)
    assert network[2].value[0].activation is jnp.tanh
    # The first policy hardly depends on what it sees.
    assert np.std(network[2].action[1].kernel) < 0.01 * 2 / 64**0.5
    bare = make_recurrent_actor_critic(6, 2, key=KEY, normalize_obs=False)
    assert kinds(bare) == [LSTM, PPOAdapter]


def test_attention_has_no_initial_state_to_train():
    network = make_recurrent_actor_critic(6, 2, key=KEY, cell="attention")
    assert kinds(network) == [Normalizer, WindowedAttention, PPOAdapter]
    assert network[1].hidden_features == network[2].action[0].in_features == 128
    with pytest.raises(ValueError, match="attention begins an episode without a mem"):
        make_recurrent_actor_critic(
            6, 2, key=KEY, cell="attention", trainable_initial_state=True
        )


def test_variational_actor_critic_has_a_bottleneck():
    network = make_variational_actor_critic(
        6, 2, key=KEY, latent_size=3, encoder_sizes=(5,), kl_weight=0.5
    )
    assert kinds(network) == [
        Normalizer,
        Dense,
        Dense,
        VariationalBottleneck,
        PPOAdapter,
    ]
    assert network[2].out_features == 6 and network[2].activation is None
    assert network[3].latent_size == 3 and network[3].kl_weight == 0.5
    assert network[4].value[0].in_features == 3
    linear = make_variational_actor_critic(6, 2, key=KEY, encoder_sizes=())
    assert kinds(linear)[1:3] == [Dense, VariationalBottleneck]


@pytest.mark.parametrize(
    "network",
    [
        make_mlp_actor_critic(6, 2, [4], [4], key=KEY),
        make_recurrent_actor_critic(6, 2, key=KEY, hidden_features=4, head_sizes=()),
        make_recurrent_actor_critic(6, 2, key=KEY, hidden_features=5, cell="lru"),
        make_recurrent_actor_critic(6, 2, key=KEY, hidden_features=5, cell="attention"),
        make_variational_actor_critic(6, 2, key=KEY, latent_size=2),
    ],
    ids=["mlp", "recurrent", "lru", "attention", "variational"],
)
def test_networks_run(network):
    @eqx.filter_jit
    def step(network, keys, x):
        return network(network.initialize_state(keys), x)

    result = step(network, jr.split(KEY, 3), jnp.ones((3, 6)))
    assert result.output.actions.shape == (3, 2)
    assert result.output.loglikelihoods.shape == (3,)
    assert result.output.value_estimates.shape == (3,)
    for leaf in jax.tree.leaves((result.output, result.regularization_loss)):
        assert np.all(np.isfinite(leaf))


def test_unknown_names_list_the_choices():
    with pytest.raises(ValueError, match="unknown activation 'sine'.*'relu', 'tanh'"):
        make_mlp([3, 2], key=KEY, activation="sine")
    with pytest.raises(ValueError, match="unknown cell 'rnn'.*'gru', 'lru', 'min_gru'"):
        make_recurrent_actor_critic(3, 2, key=KEY, cell="rnn")


def test_no_sizes_are_refused():
    with pytest.raises(ValueError, match="sizes starts with the size of the input"):
        make_mlp_layers([], key=KEY)


def test_an_observation_that_is_not_flat_is_named():
    network = make_mlp_actor_critic(6, 2, [4], [4], key=KEY)
    state = network.initialize_state(jr.split(KEY, 3))
    with pytest.raises(CompositionError, match=r"\(Normalizer\).*\[B, 6\], got \[3, 2"):
        network(state, jnp.ones((3, 2, 3)))


def test_activations_may_be_functions():
    assert isinstance(make_mlp([3, 2], key=KEY, activation=jnp.sin), Sequential)


@dataclasses.dataclass(frozen=True)
class Fake:
    """An environment that only says what its observations and actions are like."""

    obs: Any
    action_size: int = 2
    discrete: bool = False

    def reset(self, key):
        return State.create((), self.obs, 0.0, terminated=False, truncated=False)

    def step(self, state, action):
        return state


MAKERS = {
    "mlp": make_mlp_actor_critic,
    "recurrent": make_recurrent_actor_critic,
    "variational": make_variational_actor_critic,
}


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_an_environment_says_the_sizes_and_the_sampler(make):
    discrete = make(key=KEY, env=CartPole())
    alike = make(4, 2, discrete=True, key=KEY, **sizes_of(make))
    continuous = make(key=KEY, env=Pendulum())
    assert eqx.tree_equal(discrete, alike)
    assert isinstance(discrete[-1].action[-1], CategoricalSampler)
    assert isinstance(continuous[-1].action[-1], NormalTanhSampler)


def sizes_of(make):
    if make is not make_mlp_actor_critic:
        return {}
    return {"actor_hidden_sizes": [64, 64], "critic_hidden_sizes": [64, 64]}


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
@pytest.mark.parametrize(
    "obs",
    [
        jnp.zeros((3, 3, 2)),
        {"image": jnp.zeros((3, 3)), "speed": jnp.zeros(2, jnp.int32)},
        jnp.zeros(4, jnp.uint8),
    ],
    ids=["image", "tree", "bytes"],
)
def test_any_observation_reaches_the_first_layer(make, obs, getkey):
    env = Fake(obs)
    for normalize_obs in (True, False):
        network = make(key=KEY, env=env, normalize_obs=normalize_obs)
        check_acting(env, network)


def test_what_only_a_simulator_knows_is_left_out(getkey):
    obs = {"state": jnp.zeros(3), "privileged_state": jnp.zeros(7)}
    network = make_recurrent_actor_critic(key=KEY, env=Fake(obs))
    carry = network.initialize_state(jr.split(getkey(), 2))
    seen = {"state": jnp.ones((2, 3)), "privileged_state": jnp.ones((2, 7))}
    hidden = {**seen, "privileged_state": jnp.full((2, 7), jnp.nan)}
    one, other = network(carry, seen).output, network(carry, hidden).output
    np.testing.assert_array_equal(one.value_estimates, other.value_estimates)
    assert jnp.all(jnp.isfinite(one.value_estimates))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "expected obs_size and action_size, or env"),
        ({"obs_size": 3}, "expected obs_size and action_size, or env"),
        ({"env": Fake(()), "obs_size": 3}, "got both"),
        ({"env": object()}, "object does not say its action_size"),
        ({"env": CartPole}, r"got the class CartPole; write CartPole\(\.\.\.\)"),
    ],
)
def test_sizes_come_from_one_place(arguments, message):
    with pytest.raises(ValueError, match=message):
        make_recurrent_actor_critic(key=KEY, **arguments)


@pytest.mark.parametrize(
    "size", [2.0, "2", (2,), None, True, 0, -1, jnp.float32(2), jnp.ones(3, int)]
)
def test_an_action_size_that_is_no_size_is_refused(size):
    env = Silent()
    env.action_size = size
    with pytest.raises(ValueError, match="Silent.action_size to be an int") as caught:
        make_recurrent_actor_critic(key=KEY, env=env)
    assert "\n" not in str(caught.value)


def test_an_action_size_may_be_any_integer():
    env = Silent()
    for size in (np.int64(3), jnp.int32(3)):
        env.action_size = size
        assert make_mlp_actor_critic(key=KEY, env=env)[1].action[-2].out_features == 6


class Silent:
    """An environment that says nothing of itself."""

    def reset(self, key):
        return Pendulum().reset(key)


class Mapped(Silent):
    """One that is a batch of environments already."""

    action_size = 1

    def reset(self, key):
        return jax.vmap(Pendulum().reset)(key)


class Broken(Silent):
    """One without its simulator."""

    action_size = 1

    def reset(self, key):
        raise RuntimeError("no simulator\nat all")


def test_an_environment_that_cannot_be_reset_is_told_why():
    message = r"Mapped.reset\(key\) fails: vmap .*; pass .* without its vmap .*wrapper"
    with pytest.raises(ValueError, match=message):
        make_mlp_actor_critic(key=KEY, env=Mapped())
    with pytest.raises(ValueError, match=r"Broken.reset\(key\) fails: no simulator$"):
        make_mlp_actor_critic(key=KEY, env=Broken())


@pytest.mark.parametrize(
    "make",
    [make_mlp_actor_critic, make_recurrent_actor_critic, make_variational_actor_critic],
)
def test_a_flag_is_true_or_false(make):
    jaxtyping.config.update("jaxtyping_disable", True)
    try:
        for flag in ("state_independent_std", "discrete", "normalize_obs"):
            with pytest.raises(
                TypeError, match=f"{flag} must be True or False, got 'y"
            ):
                make(3, 2, key=KEY, **{flag: "yes"})
    finally:
        jaxtyping.config.update("jaxtyping_disable", False)


def test_a_cell_is_a_name():
    for wrong in (None, 3):
        jaxtyping.config.update("jaxtyping_disable", True)
        try:
            with pytest.raises(TypeError, match=f"cell must be one of .* got {wrong}"):
                make_recurrent_actor_critic(3, 2, key=KEY, cell=wrong)
        finally:
            jaxtyping.config.update("jaxtyping_disable", False)
