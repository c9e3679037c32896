import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from nnx_ppo_fn.networks._errors import CompositionError
from nnx_ppo_fn.networks.adapter import PPOAdapter
from nnx_ppo_fn.networks.containers import Parallel
from nnx_ppo_fn.networks.feedforward import Stateless
from nnx_ppo_fn.networks.sampling_layers import CategoricalSampler, NormalTanhSampler
from nnx_ppo_fn.networks.types import PPONetworkOutput
from nnx_ppo_fn.networks.unroll import unroll


def first_feature(x):
    return x[..., 0]


def first_feature_kept(x):
    return x[..., :1]


@pytest.mark.parametrize("value", [first_feature, first_feature_kept])
def test_actions_likelihoods_and_values_side_by_side(value):
    adapter = PPOAdapter(NormalTanhSampler(0.0), Stateless(value))
    x = jnp.arange(8, dtype=jnp.float32).reshape(2, 4)
    state = adapter.initialize_state(jr.split(jr.key(0), 2))
    result = adapter(state, x)
    assert isinstance(result.output, PPONetworkOutput)
    assert result.output.actions.shape == (2, 2)
    assert result.output.loglikelihoods.shape == (2,)
    np.testing.assert_array_equal(result.output.value_estimates, [0, 4])
    raw = result.rollout_extras["action"]
    np.testing.assert_array_equal(result.output.actions, jnp.tanh(raw))

    xs = jnp.stack([x, x, x])
    over_time = unroll(adapter, state, xs, jnp.zeros((3, 2), bool))
    np.testing.assert_array_equal(over_time.output.value_estimates, [[0, 4]] * 3)


def test_banks_of_samplers_and_of_values_keep_their_names():
    adapter = PPOAdapter(
        Parallel(arm=NormalTanhSampler(0.0), gear=CategoricalSampler(0.0)),
        Parallel(speed=Stateless(first_feature), energy=Stateless(first_feature_kept)),
    )
    state = adapter.initialize_state(jr.split(jr.key(0), 3))
    result = adapter(state, jnp.ones((3, 4))).output
    shapes = {name: action.shape for name, action in result.actions.items()}
    assert shapes == {"arm": (3, 2), "gear": (3,)}
    assert set(result.loglikelihoods) == {"arm", "gear"}
    assert all(v.shape == (3,) for v in result.value_estimates.values())


def test_an_action_port_without_a_sampler_is_refused():
    adapter = PPOAdapter(Stateless(jnp.tanh), Stateless(first_feature))
    with pytest.raises(CompositionError, match="expected the action port to end in"):
        adapter({"action": (), "value": ()}, jnp.ones((2, 4)))


def test_what_is_no_sampled_action_is_named():
    bank = Parallel(arm=CategoricalSampler(0.0), leg=Stateless(jnp.tanh))
    adapter = PPOAdapter(bank, Stateless(first_feature))
    state = adapter.initialize_state(jr.split(jr.key(0), 2))
    with pytest.raises(CompositionError, match=r"got float32 \[2, 4\] at \['leg'\]"):
        adapter(state, jnp.ones((2, 4)))


def test_a_batch_of_one_environment_with_one_feature_is_not_confused():
    adapter = PPOAdapter(CategoricalSampler(0.0), Stateless(first_feature_kept))
    state = adapter.initialize_state(jr.split(jr.key(0), 1))
    assert adapter(state, jnp.ones((1, 1))).output.value_estimates.shape == (1,)
    over_time = unroll(adapter, state, jnp.ones((1, 1, 1)), jnp.zeros((1, 1), bool))
    assert over_time.output.value_estimates.shape == (1, 1)


def test_values_are_kept_in_float32(getkey):
    """Advantages are differences of values, of which bfloat16 keeps three digits."""
    value = Stateless(lambda x: {"a": x[..., :1], "b": x[..., 0]})
    network = PPOAdapter(CategoricalSampler(0.1), value)
    x = jnp.ones((2, 2), jnp.bfloat16)
    result = network(network.initialize_state(jr.split(getkey(), 2)), x).output
    for leaf in (*result.value_estimates.values(), result.loglikelihoods):
        assert leaf.dtype == jnp.float32 and leaf.shape == (2,)
