"""What a module is made with: wrong arguments are named, and numbers of NumPy taken."""

from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import jaxtyping
import numpy as np
import pytest

from nnx_ppo_fn import (
    AR1VariationalBottleneck,
    BernoulliGate,
    CompositionError,
    Delay,
    Dense,
    Dropout,
    Filter,
    Flattener,
    GaussianNoise,
    Lift,
    LRU,
    LSTM,
    make_conv_encoder,
    Normalizer,
    NormalTanhSampler,
    PopulationGraphBuilder,
    Scale,
    Sequential,
    Splitter,
    VariationalBottleneck,
    WindowedAttention,
    with_recording,
)
from nnx_ppo_fn.networks._routing import Container


KEY = jr.key(0)
KEYS = jr.split(KEY, 3)


@pytest.fixture(autouse=True)
def no_type_checker():
    """As for most users: no type checker speaks before the library does."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


class Case(NamedTuple):
    """A call of one argument, the argument's name, and what is too small for it."""

    make: Any
    name: str
    too_small: Any = None


SIZES = [
    Case(lambda size: Splitter(a=size), "Splitter's 'a'", 0),
    Case(Flattener, "preserve_levels", -1),
    Case(VariationalBottleneck, "latent_size", 0),
    Case(AR1VariationalBottleneck, "latent_size", 0),
    Case(BernoulliGate, "size", 0),
    Case(lambda size: Delay(0.0, size), "k_steps", 0),
    Case(lambda size: make_conv_encoder((8, 8, 1), size, key=KEY), "features", 0),
]


@pytest.mark.parametrize("case", SIZES)
def test_a_size_is_an_integer(case):
    for wrong in (2.5, 2.0, "3", None, True, (3,), jnp.array(2)):
        with pytest.raises(TypeError) as caught:
            case.make(wrong)
        assert str(caught.value) == f"{case.name} must be an integer, got {wrong!r}"
    with pytest.raises(ValueError) as caught:
        case.make(case.too_small)
    expected = f"{case.name} must be at least {case.too_small + 1}, got"
    assert str(caught.value).startswith(expected)
    if "conv" not in repr(case.make):
        assert eqx.tree_equal(case.make(np.int64(2)), case.make(2))


COEFFICIENTS = [
    Case(Scale, "factor"),
    Case(lambda value: Normalizer(2, clip=value), "clip"),
    Case(lambda value: VariationalBottleneck(2, value), "kl_weight"),
    Case(lambda value: VariationalBottleneck(2, min_std=value), "min_std"),
    Case(lambda value: AR1VariationalBottleneck(2, value), "kl_weight"),
    Case(lambda value: AR1VariationalBottleneck(2, min_std=value), "min_std"),
    Case(lambda value: AR1VariationalBottleneck(2, ar1_weight=value), "ar1_weight"),
    Case(
        lambda value: BernoulliGate(2, gradient="relaxed", temperature=value),
        "temperature",
    ),
    Case(lambda value: Delay(0.0, 1, value), "initial_value"),
    Case(Dropout, "rate"),
    Case(GaussianNoise, "std"),
    Case(lambda p: BernoulliGate(2, initial_probability=p), "initial_probability"),
]


@pytest.mark.parametrize("case", COEFFICIENTS)
def test_a_coefficient_is_a_number(case):
    takes_several = case.name in ("std", "initial_probability")
    meant = {"clip": None, "initial_value": True}.get(case.name, case)
    for wrong in ("0.3", None, {"a": 1}, [0.1, "a"], True, jnp.array(1 + 2j), KEY):
        if wrong is meant:
            continue
        with pytest.raises(TypeError) as caught:
            case.make(wrong)
        several = " of numbers" if takes_several else ""
        expected = f"{case.name} must be a number or an array{several}, got {wrong!r}"
        assert str(caught.value) == expected
    for same in (np.float32(0.5), np.float64(0.5), np.array(0.5), np.float16(0.5)):
        assert eqx.tree_equal(case.make(same), case.make(0.5))


@pytest.mark.parametrize("case", COEFFICIENTS[:-2])
def test_several_numbers_are_for_a_map_and_not_for_the_batch(case):
    """With as many as there are environments, each would have its own."""
    three = np.array([0.1, 0.2, 0.3], np.float32)
    with pytest.raises(
        CompositionError,
        match=rf"expected {case.name} to be one number, got an array \[3\]; map over "
        "several with equinox.filter_vmap",
    ):
        module = case.make(three)
        x = jnp.ones(3) if isinstance(module, Delay) else jnp.ones((3, 2))
        x = jnp.ones((3, 4)) if "Variational" in type(module).__name__ else x
        module(module.initialize_state(KEYS), x)


FLAGS = [
    lambda flag: GaussianNoise(0.1, learned=flag),
    lambda flag: GaussianNoise(0.1, multiplicative=flag),
    lambda flag: GaussianNoise(0.1, fresh_keys=flag),
    lambda flag: GaussianNoise(0.1, inference=flag),
    lambda flag: Dropout(0.1, inference=flag),
    lambda flag: BernoulliGate(2, inference=flag),
    lambda flag: BernoulliGate(2, fresh_keys=flag),
    lambda flag: VariationalBottleneck(2, inference=flag),
    lambda flag: VariationalBottleneck(2, fresh_keys=flag),
    lambda flag: AR1VariationalBottleneck(2, backprop_through_time=flag),
    lambda flag: AR1VariationalBottleneck(2, inference=flag),
    lambda flag: AR1VariationalBottleneck(2, fresh_keys=flag),
    lambda flag: Lift(jnp.tanh, fresh_keys=flag),
    lambda flag: Lift(eqx.nn.Identity(), draws=flag),
    lambda flag: make_conv_encoder((3, 3, 1), 2, key=KEY, channels_last=flag),
]


@pytest.mark.parametrize("make", FLAGS)
def test_a_flag_is_true_or_false(make):
    for wrong in ("no", 1):
        with pytest.raises(TypeError, match=rf"must be True or False, got {wrong!r}"):
            make(wrong)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: BernoulliGate(2, initial_probability=1e-50), "strictly between 0"),
        (lambda: BernoulliGate(2, initial_probability=1 - 1e-9), "strictly between 0"),
        (lambda: Dropout(1 - 1e-9), "below 1"),
        (lambda: GaussianNoise(1e-50, learned=True), "must start above 0"),
        (lambda: GaussianNoise(float("inf")), "at least 0 and finite, got inf"),
    ],
)
def test_numbers_are_looked_at_as_they_will_be_computed_with(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def encoder(**options):
    return make_conv_encoder(
        **({"image_shape": (3, 3, 1), "features": 2, "key": KEY} | options)
    )


def test_an_encoder_is_made_of_integers():
    for name, wrong in (
        ("image_shape", 8),
        ("image_shape", "abc"),
        ("image_shape", (8.0, 8, 3)),
        ("image_shape", np.zeros((8, 8, 3))),
        ("channels", 16),
        ("channels", (16.0,)),
        ("kernel_sizes", 3.0),
        ("kernel_sizes", None),
        ("kernel_sizes", "33"),
        ("strides", (1.0, 1.0)),
    ):
        with pytest.raises(ValueError, match=f"expected {name} .*got") as caught:
            encoder(**{name: wrong})
        assert str(caught.value).endswith(str(wrong))
    for name, given, same in (
        ("kernel_sizes", np.int64(1), 1),
        ("image_shape", np.array([3, 3, 1]), (3, 3, 1)),
    ):
        rest = {"channels": (2,)}
        assert eqx.tree_equal(
            encoder(**rest, **{name: given}), encoder(**rest, **{name: same})
        )
    with pytest.raises(TypeError, match="expected one typed key"):
        encoder(key=jr.PRNGKey(0))
    with pytest.raises(
        CompositionError, match=r"expected images x \[B, 3, 3, 1\], got"
    ):
        module = encoder(channels=(1,))
        module(module.initialize_state(KEYS), {"a": jnp.ones((3, 3, 3, 1))})


class Childless(Container[Any, Any]):
    """A container that forgot its children."""

    def children(self):
        return ()

    def route(self, call, x):
        return x


def test_a_container_has_children():
    with pytest.raises(
        ValueError, match="Childless needs at least one child, got none"
    ):
        Childless()


@pytest.mark.parametrize("step", [None, 1.5, [0], True])
def test_a_path_is_made_of_keys_and_positions(step):
    with pytest.raises(CompositionError, match="Filter's 'a' must be a key, a tuple"):
        Filter({"a": ("x", step)})


def test_a_swept_scale_may_stand_beside_a_fixed_one():
    """Numbers of which some are traced and others are not."""
    x = jnp.ones((3, 2))
    swept = jax.vmap(lambda std: GaussianNoise([std, 0.1])(KEYS, x).output)(
        jnp.array([0.1, 0.5])
    )
    np.testing.assert_allclose(
        swept[1], GaussianNoise([0.5, 0.1])(KEYS, x).output, rtol=1e-6
    )


def graph():
    builder = PopulationGraphBuilder(key=KEY).add_input("a", 2, input_from="x")
    return builder.add_output("b", 2).connect("a", "b", delay=1).finalize()


MODULES = [
    Dense(2, 2, key=KEY),
    Normalizer(2),
    LSTM(2, 2, key=KEY),
    LRU(2, 2, key=KEY),
    WindowedAttention(2, 2, key=KEY),
    Delay(jnp.zeros(2), 2),
    GaussianNoise(0.1),
    GaussianNoise(0.1, fresh_keys=True),
    Dropout(0.5, hold="episode"),
    AR1VariationalBottleneck(1),
    NormalTanhSampler(0.0),
    Lift(eqx.nn.Dropout(0.5)),
    Lift(eqx.nn.LayerNorm(2)),
    Sequential([GaussianNoise(0.1)]),
    with_recording(LSTM(2, 2, key=KEY), "*"),
    graph(),
]


@pytest.mark.parametrize("module", MODULES, ids=lambda one: type(one).__name__)
def test_a_carry_is_born_from_one_key_for_each_environment(module):
    module.initialize_state(KEYS)
    for wrong, came in (
        (KEY, r"key<fry>\[\]"),
        (KEYS[:2].reshape(1, 2), r"key<fry>\[1, 2\]"),
        (jr.PRNGKey(0), r"uint32\[2\]"),
        (4, "int"),
        (None, "NoneType"),
    ):
        with pytest.raises(
            TypeError,
            match="expected one typed key for each environment, "
            rf"jax.random.split\(key, B\), got {came}$",
        ):
            module.initialize_state(wrong)
