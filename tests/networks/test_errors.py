import jax.numpy as jnp
import jax.random as jr
import pytest

from nnx_ppo_fn.networks._errors import CompositionError, expect_features, located
from nnx_ppo_fn.networks.adapter import PPOAdapter
from nnx_ppo_fn.networks.containers import Sequential
from nnx_ppo_fn.networks.feedforward import Dense, Stateless
from nnx_ppo_fn.networks.recurrent import GRU, LSTM
from nnx_ppo_fn.networks.sampling_layers import NormalTanhSampler
from nnx_ppo_fn.networks.unroll import unroll
from nnx_ppo_fn.networks.variational import VariationalBottleneck


KEY = jr.key(0)


def failure(network, x):
    state = network.initialize_state(jr.split(KEY, 4))
    with pytest.raises(CompositionError) as caught:
        network(state, x)
    return caught.value


@pytest.mark.parametrize(
    "module, expected",
    [
        (LSTM(64, 8, key=KEY), "(LSTM): expected x [B, 64], got [4, 63]"),
        (GRU(64, 8, key=KEY), "(GRU): expected x [B, 64], got [4, 63]"),
        (Dense(64, 8, key=KEY), "(Dense): expected x [B, 64], got [4, 63]"),
        (
            VariationalBottleneck(32),
            "(VariationalBottleneck): expected x [B, 64], got [4, 63]",
        ),
        (
            NormalTanhSampler(0.0),
            "(NormalTanhSampler): expected x [B, 2 * action_size] (means, then raw "
            "standard deviations), got [4, 63]",
        ),
    ],
    ids=lambda argument: type(argument).__name__,
)
def test_wrong_sizes_name_the_place_in_one_line(module, expected):
    network = Sequential([Dense(2, 63, key=KEY), Sequential([module])])
    error = failure(network, jnp.ones((4, 2)))
    assert str(error) == f"in Sequential[1] > Sequential[0] {expected}"
    assert error.path == ("Sequential[1]", "Sequential[0]")


def test_the_same_in_an_unroll():
    network = Sequential([LSTM(64, 8, key=KEY)])
    state = network.initialize_state(jr.split(KEY, 4))
    with pytest.raises(CompositionError) as caught:
        unroll(network, state, jnp.ones((5, 4, 63)), jnp.zeros((5, 4), bool))
    assert (
        str(caught.value)
        == "in Sequential[0] (LSTM): expected xs [T, B, 64], got [5, 4, 63]"
    )


def test_an_input_that_is_no_array_is_described():
    error = failure(Sequential([Dense(2, 1, key=KEY)]), {"a": jnp.ones((4, 2))})
    assert str(error).startswith("in Sequential[0] (Dense): expected x ")
    assert "\n" not in str(error) and "'a'" in str(error)


def test_a_type_checker_is_cut_short():
    error = failure(Sequential([Dense(2, 1, key=KEY)]), jnp.ones((4, 2), jnp.int32))
    assert str(error) == (
        "in Sequential[0] (Dense): expected x of type Float[Array, 'B features'], "
        "got i32[4,2]"
    )


def test_ports_are_places():
    network = PPOAdapter(Sequential([NormalTanhSampler(0.0)]), Dense(2, 3, key=KEY))
    error = failure(Sequential([network]), jnp.ones((4, 2)))
    assert str(error) == (
        "in Sequential[0] > PPOAdapter.value (Dense): expected the value port to "
        "return one number per environment, [B] or [B, 1], got [4, 3]"
    )


def test_other_errors_get_a_note_and_keep_their_type():
    def broken(x):
        raise KeyError("camera")

    network = Sequential([Stateless(jnp.tanh), Stateless(broken)])
    state = network.initialize_state(jr.split(KEY, 4))
    with pytest.raises(KeyError, match="camera") as caught:
        network(state, jnp.ones((4, 2)))
    assert caught.value.__notes__ == ["in Sequential[1] (Stateless)"]


def test_located_puts_the_outermost_place_first():
    with pytest.raises(CompositionError, match=r"in a > b \(str\): no good"):
        with located("a", 1), located("b", "module"):
            raise CompositionError("no good")


def test_expect_features_lets_the_right_shape_pass():
    expect_features(jnp.ones((4, 3)), 3)
    expect_features(jnp.ones((5, 4, 3)), 3, axes="T, B")
    with pytest.raises(CompositionError, match=r"expected y \[B, 3\], got \[5, 4, 3\]"):
        expect_features(jnp.ones((5, 4, 3)), 3, name="y")
