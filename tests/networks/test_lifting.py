"""Layers of Equinox, lifted."""

import inspect

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from helpers import assert_close, tree_equal
from nnx_ppo_fn import (
    check_module,
    CompositionError,
    Dense,
    GRU,
    Lift,
    LSTM,
    Sequential,
    unroll,
)


BATCH = 4


def linear(key):
    return eqx.nn.Linear(4, 3, key=key)


def sequential(key):
    return eqx.nn.Sequential([linear(key), eqx.nn.Lambda(jnp.tanh)])


# A layer from a key, and the shape of one example.
LAYERS = {
    "Linear": (linear, (4,)),
    "Identity": (lambda key: eqx.nn.Identity(), (4,)),
    "Lambda": (lambda key: eqx.nn.Lambda(jnp.cumsum), (4,)),
    "MLP": (lambda key: eqx.nn.MLP(4, 2, 3, 2, key=key), (4,)),
    "Sequential": (sequential, (4,)),
    "Embedding": (lambda key: eqx.nn.Embedding(6, 2, key=key), ()),
    "RotaryPositionalEmbedding": (
        lambda key: eqx.nn.RotaryPositionalEmbedding(4),
        (3, 4),
    ),
    "LayerNorm": (lambda key: eqx.nn.LayerNorm(4), (4,)),
    "RMSNorm": (lambda key: eqx.nn.RMSNorm(4), (4,)),
    "GroupNorm": (lambda key: eqx.nn.GroupNorm(2, 4), (4, 3)),
    "WeightNorm": (lambda key: eqx.nn.WeightNorm(linear(key)), (4,)),
    "PReLU": (lambda key: eqx.nn.PReLU(0.3), (4,)),
    "Dropout": (lambda key: eqx.nn.Dropout(0.5), (4,)),
    "Conv": (lambda key: eqx.nn.Conv(1, 2, 3, 2, key=key), (2, 5)),
    "Conv1d": (lambda key: eqx.nn.Conv1d(2, 3, 2, key=key), (2, 5)),
    "Conv2d": (lambda key: eqx.nn.Conv2d(2, 3, 2, key=key), (2, 4, 5)),
    "Conv3d": (lambda key: eqx.nn.Conv3d(1, 2, 2, key=key), (1, 3, 3, 4)),
    "ConvTranspose": (lambda key: eqx.nn.ConvTranspose(1, 2, 3, 2, key=key), (2, 3)),
    "ConvTranspose1d": (lambda key: eqx.nn.ConvTranspose1d(2, 3, 2, key=key), (2, 3)),
    "ConvTranspose2d": (
        lambda key: eqx.nn.ConvTranspose2d(2, 3, 2, key=key),
        (2, 3, 2),
    ),
    "ConvTranspose3d": (
        lambda key: eqx.nn.ConvTranspose3d(1, 2, 2, key=key),
        (1, 2, 2, 3),
    ),
    "Pool": (lambda key: eqx.nn.Pool(0.0, jax.lax.add, 1, 2), (2, 5)),
    "AvgPool1d": (lambda key: eqx.nn.AvgPool1d(2), (2, 5)),
    "AvgPool2d": (lambda key: eqx.nn.AvgPool2d(2), (2, 4, 5)),
    "AvgPool3d": (lambda key: eqx.nn.AvgPool3d(2), (1, 3, 3, 4)),
    "MaxPool1d": (lambda key: eqx.nn.MaxPool1d(2), (2, 5)),
    "MaxPool2d": (lambda key: eqx.nn.MaxPool2d(2), (2, 4, 5)),
    "MaxPool3d": (lambda key: eqx.nn.MaxPool3d(2), (1, 3, 3, 4)),
    "AdaptivePool": (lambda key: eqx.nn.AdaptivePool(2, 1, jnp.max), (2, 5)),
    "AdaptiveAvgPool1d": (lambda key: eqx.nn.AdaptiveAvgPool1d(2), (2, 5)),
    "AdaptiveAvgPool2d": (lambda key: eqx.nn.AdaptiveAvgPool2d(2), (2, 4, 5)),
    "AdaptiveAvgPool3d": (lambda key: eqx.nn.AdaptiveAvgPool3d(2), (1, 3, 3, 4)),
    "AdaptiveMaxPool1d": (lambda key: eqx.nn.AdaptiveMaxPool1d(2), (2, 5)),
    "AdaptiveMaxPool2d": (lambda key: eqx.nn.AdaptiveMaxPool2d(2), (2, 4, 5)),
    "AdaptiveMaxPool3d": (lambda key: eqx.nn.AdaptiveMaxPool3d(2), (1, 3, 3, 4)),
}

# A layer that cannot be lifted, and what the error says.
REFUSED = {
    "BatchNorm": (
        lambda key: eqx.nn.BatchNorm(4, "batch", mode="ema"),
        "BatchNorm keeps a state of its own.*Normalizer.*LayerNorm",
    ),
    "SpectralNorm": (
        lambda key: eqx.nn.SpectralNorm(linear(key), "weight", key=key),
        "SpectralNorm keeps a state of its own.*WeightNorm",
    ),
    "GRUCell": (
        lambda key: eqx.nn.GRUCell(4, 3, key=key),
        "GRUCell has a memory.*nnx_ppo_fn.GRU, .*RecurrentModule",
    ),
    "LSTMCell": (
        lambda key: eqx.nn.LSTMCell(4, 3, key=key),
        "LSTMCell has a memory.*nnx_ppo_fn.LSTM, ",
    ),
    "MultiheadAttention": (
        lambda key: eqx.nn.MultiheadAttention(2, 4, key=key),
        "with one input, but MultiheadAttention takes query, key_, value. Wrap it in",
    ),
    "Shared": (
        lambda key: eqx.nn.Shared(
            (linear(key), linear(key)), lambda two: two[1], lambda two: two[0]
        ),
        "with one input, but Shared takes nothing",
    ),
}


def examples(name, shape, key):
    if name == "Embedding":
        return jr.randint(key, (BATCH,), 0, 6)
    return jr.normal(key, (BATCH, *shape))


def test_every_layer_of_equinox_is_looked_at():
    layers = {
        name
        for name, value in vars(eqx.nn).items()
        if inspect.isclass(value) and "__call__" in dir(value)
    }
    assert layers == LAYERS.keys() | REFUSED.keys()


@pytest.mark.parametrize("name", LAYERS)
def test_a_lifted_layer_is_a_loop_over_the_rows(name, getkey):
    make, shape = LAYERS[name]
    layer = make(getkey())
    x = examples(name, shape, getkey())
    module = Lift(layer)
    state = module.initialize_state(jr.split(getkey(), BATCH))
    result = module(state, x)
    if module.draws:
        _, draw = module.advance(state)
        rows = [layer(row, key=key) for row, key in zip(x, draw, strict=True)]
    else:
        assert state == () == result.next_state
        rows = [layer(row) for row in x]
    assert_close(result.output, jnp.stack(rows), 1e-6)


@pytest.mark.parametrize("name", REFUSED)
def test_a_layer_that_would_break_the_laws_is_refused(name, getkey):
    make, message = REFUSED[name]
    with pytest.raises(CompositionError, match=message):
        Lift(make(getkey()))


def test_a_layer_with_a_state_inside_is_refused(getkey):
    norm = eqx.nn.BatchNorm(3, "batch", mode="ema")
    with pytest.raises(CompositionError, match="Sequential keeps a state of its own"):
        Lift(eqx.nn.Sequential([linear(getkey()), norm]))


def add(x, y):
    return x + y


def without_input():
    return jnp.zeros(2)


def with_option(x, *, size):
    return x[:size]


@pytest.mark.parametrize(
    ("layer", "message"),
    [
        (eqx.nn.Linear, r"got the class Linear; make one: Linear\(...\)"),
        (GRU(2, 2, key=jr.key(0)), "GRU is a module already and stands by itself"),
        (3, "expects a layer, got int, which is no callable"),
        (add, "with one input, but add takes x, y"),
        (without_input, "without_input takes nothing"),
        (with_option, "with_option takes x, size"),
    ],
)
def test_what_is_no_layer_is_refused(layer, message):
    with pytest.raises(CompositionError, match=message):
        Lift(layer)


def test_a_shape_that_does_not_fit_names_the_layer_and_keeps_the_cause(getkey):
    network = Sequential([Lift(eqx.nn.Identity()), Lift(linear(getkey()))])
    with pytest.raises(CompositionError) as caught:
        network(((), ()), jnp.ones((5, 2)))
    text = str(caught.value)
    assert text.startswith(
        "in Sequential[1] (Lift): expected x [B, ...] with rows that"
    )
    assert "Linear takes, got [5, 2]; on one row it raised TypeError: dot_gen" in text
    assert isinstance(caught.value.__cause__, TypeError)


def test_an_empty_input_is_refused():
    with pytest.raises(CompositionError, match="at least one array, got an empty tree"):
        Lift(eqx.nn.Identity())((), {})


class Pair(eqx.Module):
    """A layer of trees: `(a, b)` in, sum and difference out."""

    def __call__(self, x):
        return {"sum": x["a"] + x["b"], "difference": x["a"] - x["b"]}


def test_trees_go_in_and_out():
    x = {"a": jnp.arange(6.0).reshape(3, 2), "b": jnp.ones((3, 2))}
    output = Lift(Pair())((), x).output
    np.testing.assert_array_equal(output["sum"], [[1, 2], [3, 4], [5, 6]])
    np.testing.assert_array_equal(output["difference"], [[-1, 0], [1, 2], [3, 4]])


def test_a_layer_keeps_its_precision(getkey):
    layer = jax.tree.map(
        lambda leaf: leaf.astype(jnp.bfloat16) if eqx.is_array(leaf) else leaf,
        linear(getkey()),
    )
    result = Lift(layer)((), jnp.ones((3, 4), jnp.bfloat16))
    assert result.output.dtype == jnp.bfloat16
    assert result.regularization_loss.dtype == jnp.float32


# Layers that draw.


class Jitter(eqx.Module):
    """A layer that needs a key and has no `inference` flag."""

    def __call__(self, x, *, key):
        return x + jr.normal(key, x.shape)


class Optional(eqx.Module):
    """A layer that draws if it is given a key; nothing shows that it would."""

    def __call__(self, x, *, key=None):
        return x if key is None else x + jr.normal(key, x.shape)


def test_who_draws_is_found_or_said(getkey):
    nested = eqx.nn.Sequential([linear(getkey()), eqx.nn.Dropout(0.5)])
    assert Lift(nested).draws and Lift(Jitter()).draws
    assert not Lift(Optional()).draws and Lift(Optional(), draws=True).draws
    with pytest.raises(CompositionError, match="tanh cannot draw: it takes no `key`"):
        Lift(jnp.tanh, draws=True)


class Flagged(eqx.Module):
    """A layer with a flag that has to do with something else than drawing."""

    inference: bool = False

    def __call__(self, x):
        return x if self.inference else 2 * x


def test_a_flag_without_a_key_is_told_how_to_stand_in(getkey):
    with pytest.raises(CompositionError, match="inference.*flag.*draws=False"):
        Lift(Flagged())
    assert jnp.all(Lift(Flagged(), draws=False)((), jnp.ones((2, 1))).output == 2)


def jitter(x, key):
    return x + jr.normal(key, x.shape)


def test_a_key_may_be_asked_for_by_position(getkey):
    keys, x = jr.split(getkey(), 3), jnp.ones((3, 2))
    assert Lift(jitter).draws
    np.testing.assert_array_equal(
        Lift(jitter)(keys, x).output, Lift(Jitter())(keys, x).output
    )
    with pytest.raises(CompositionError, match="takes x, y, key"):
        Lift(lambda x, y, key: x)


def test_a_module_inside_a_layer_is_refused(getkey):
    inside = eqx.nn.Sequential([eqx.nn.Lambda(Dense(3, 3, key=getkey()))])
    with pytest.raises(CompositionError, match="Sequential holds the module Dense"):
        Lift(inside)


def test_rows_are_dropped_independently_and_not_in_inference(getkey):
    module = Lift(eqx.nn.Dropout(0.25))
    keys = jr.split(getkey(), 4_000)
    x = jnp.ones((4_000, 3))
    output = module(keys, x).output
    kept = np.asarray(output) > 0
    np.testing.assert_allclose(np.asarray(output)[kept], 1 / 0.75, rtol=1e-6)
    # Four standard deviations of a mean over 12 000 coins.
    assert abs(kept.mean() - 0.75) < 4 * (0.75 * 0.25 / 12_000) ** 0.5
    correlation = np.corrcoef(kept[:2_000, 0], kept[2_000:, 0])[0, 1]
    assert abs(correlation) < 4 / 2_000**0.5
    silent = eqx.nn.inference_mode(module)
    np.testing.assert_array_equal(silent(keys, x).output, x)


def test_the_chain_survives_a_reset_or_begins_anew(getkey):
    keys = jr.split(getkey(), 3)
    survives = Lift(eqx.nn.Dropout(0.5))
    assert tree_equal(survives.reset_state(keys), keys)
    fresh = Lift(eqx.nn.Dropout(0.5), fresh_keys=True).reset_state(keys)
    assert not (jr.key_data(fresh) == jr.key_data(keys)).all(axis=-1).any()


def test_lifted_layers_unroll_on_merged_rows(getkey):
    module = Sequential([Lift(linear(getkey())), LSTM(3, 2, key=getkey())])
    xs = jr.normal(getkey(), (6, 2, 4))
    state = module.initialize_state(jr.split(getkey(), 2))
    is_first = jnp.zeros((6, 2), bool).at[3, 0].set(True)
    jaxpr = jax.make_jaxpr(lambda xs: unroll(module[0], (), xs, is_first).output)(xs)
    assert "12,4" in str(jaxpr)
    assert unroll(module, state, xs, is_first).output.shape == (6, 2, 2)


@pytest.mark.parametrize("fresh_keys", [False, True])
def test_a_layer_without_a_flag_obeys_the_laws(fresh_keys, getkey):
    module = Lift(Jitter(), fresh_keys=fresh_keys)
    check_module(module, jnp.ones((4, 3)), key=getkey(), length=4)
