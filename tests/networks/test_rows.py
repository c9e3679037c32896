"""Rows that do not belong together are refused, where no type checker speaks first."""

import jax.numpy as jnp
import jax.random as jr
import jaxtyping
import pytest

from nnx_ppo_fn import (
    CompositionError,
    Dense,
    GaussianNoise,
    GRU,
    LRU,
    LSTM,
    MinGRU,
    Sequential,
    unroll,
    WindowedAttention,
)


MEMORIES = [LSTM, GRU, LRU, MinGRU, WindowedAttention]


@pytest.fixture(autouse=True)
def no_type_checker():
    """As for most users: no type checker speaks before the library does."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


@pytest.mark.parametrize("kind", MEMORIES)
@pytest.mark.parametrize("rows, came", [(1, 4), (4, 1), (2, 3)])
def test_an_input_has_the_rows_of_the_carry(kind, rows, came):
    network = Sequential([kind(3, 2, key=jr.key(0))])
    state = network.initialize_state(jr.split(jr.key(0), rows))
    with pytest.raises(CompositionError) as caught:
        network(state, jnp.ones((came, 3)))
    place = f"in Sequential[0] ({kind.__name__})"
    expected = f"with B = {rows}, as in the carry, got"
    assert str(caught.value) == f"{place}: expected x [B, ...] {expected} [{came}, 3]"
    xs, is_first = jnp.ones((5, came, 3)), jnp.zeros((5, came), bool)
    with pytest.raises(CompositionError) as caught:
        unroll(network, state, xs, is_first)
    assert (
        str(caught.value)
        == f"{place}: expected xs [T, B, ...] {expected} [5, {came}, 3]"
    )


@pytest.mark.parametrize(
    "is_first, message",
    [
        (
            jnp.zeros((5, 1), bool),
            r"bool\[5, 4\], the first two .* bool\[5, 1\]",
        ),
        (
            jnp.zeros((1, 4), bool),
            r"bool\[5, 4\], the first two .* bool\[1, 4\]",
        ),
        (jnp.zeros((5, 4)), r"is_first bool\[T, B\], got float32\[5, 4\]"),
        (jnp.zeros(5, bool), r"is_first bool\[T, B\], got bool\[5\]"),
        (None, r"is_first bool\[T, B\], got NoneType"),
    ],
)
@pytest.mark.parametrize(
    "module",
    [LSTM(3, 2, key=jr.key(0)), Dense(3, 2, key=jr.key(0)), GaussianNoise(0.1)],
    ids=["own way", "merged", "chained"],
)
def test_beginnings_are_booleans_of_every_step(module, is_first, message):
    state = module.initialize_state(jr.split(jr.key(0), 4))
    with pytest.raises(CompositionError, match=message):
        unroll(module, state, jnp.ones((5, 4, 3)), is_first)


@pytest.mark.parametrize("kind", MEMORIES)
@pytest.mark.parametrize("state", [(), None, jnp.float32(0)])
def test_a_carry_has_rows(kind, state):
    with pytest.raises(CompositionError, match="as initialize_state makes it, got"):
        kind(3, 2, key=jr.key(0))(state, jnp.ones((4, 3)))
