import importlib
import inspect
import pkgutil

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

import nnx_ppo_fn
from nnx_ppo_fn._keys import advance_keys
from nnx_ppo_fn.networks._errors import CompositionError
from nnx_ppo_fn.networks.containers import Sequential
from nnx_ppo_fn.networks.feedforward import Stateless
from nnx_ppo_fn.networks.types import (
    ChainedModule,
    output,
    StatefulModule,
    StatelessModule,
    StochasticModule,
    UnrolledModule,
)
from nnx_ppo_fn.networks.unroll import unroll


def package_modules():
    """Every class of the package that is an `eqx.Module`."""
    prefix = f"{nnx_ppo_fn.__name__}."
    for info in pkgutil.walk_packages(nnx_ppo_fn.__path__, prefix):
        if not info.name.endswith("__main__"):
            try:
                importlib.import_module(info.name)
            except ImportError as error:  # an extra that is not installed
                assert prefix not in str(error), error
    found, stack = set(), [eqx.Module]
    while stack:
        for child in stack.pop().__subclasses__():
            if child not in found:
                found.add(child)
                stack.append(child)
    return sorted(
        {cls for cls in found if cls.__module__.startswith(prefix)},
        key=lambda cls: f"{cls.__module__}.{cls.__qualname__}",
    )


@pytest.mark.filterwarnings("ignore:JAXopt is no longer maintained")
def test_every_class_is_abstract_or_final():
    classes = package_modules()
    assert len(classes) > 15
    for cls in classes:
        final = "__final__" in vars(cls)
        abstract = inspect.isabstract(cls) or bool(getattr(cls, "__abstractvars__", ()))
        assert final != abstract, f"{cls} must be either abstract or final"
        for base in cls.__mro__[1:]:
            assert "__final__" not in vars(base), f"{cls} derives from final {base}"


@pytest.mark.parametrize(
    "base, methods",
    [
        (StatefulModule, {"initialize_state", "__call__", "reset_state"}),
        (StatelessModule, {"__call__"}),
        (ChainedModule, {"initialize_state", "reset_state", "advance", "apply"}),
        (StochasticModule, {"apply"}),
        (
            UnrolledModule,
            {"initialize_state", "__call__", "reset_state", "unroll"},
        ),
    ],
)
def test_what_an_author_writes(base, methods):
    assert set(base.__abstractmethods__) == methods


def test_output_fills_in_what_a_module_has_nothing_to_say_about():
    plain = output("value", batch=3)
    assert plain.next_state == () and plain.output == "value"
    assert plain.metrics == {} and plain.rollout_extras is None
    np.testing.assert_array_equal(plain.regularization_loss, np.zeros(3))


def test_regularisation_is_kept_in_float32():
    loss = output(0, batch=2, regularization_loss=jnp.ones(2, jnp.bfloat16))
    assert loss.regularization_loss.dtype == jnp.float32


def test_a_number_as_regularisation_counts_for_every_environment():
    for number in (0, 0.5):
        loss = output("value", batch=3, regularization_loss=number).regularization_loss
        assert loss.dtype == jnp.float32
        np.testing.assert_array_equal(loss, [number] * 3)
    # An array is not stretched: it was reduced over the batch, and a law says so.
    mean = output("value", batch=3, regularization_loss=jnp.float32(0.5))
    assert mean.regularization_loss.shape == ()


def test_update_statistics_does_nothing_by_default():
    module = Stateless(jnp.tanh)
    assert module.update_statistics(None) is module


class Draws(StochasticModule):
    def apply(self, draw, x, rollout_extras=None):
        return output(draw, batch=len(x), rollout_extras=rollout_extras)


def test_a_stochastic_module_carries_a_chain_that_survives_resets(getkey):
    keys = jr.split(getkey(), 3)
    module = Draws()
    state = module.initialize_state(keys)
    result = module(module.reset_state(state), jnp.ones((3, 1)), "extras")
    next_chain, draw = advance_keys(keys)
    for got, expected in [(result.next_state, next_chain), (result.output, draw)]:
        np.testing.assert_array_equal(jr.key_data(got), jr.key_data(expected))
    assert result.rollout_extras == "extras"


def test_a_stochastic_module_may_ask_for_fresh_keys(getkey):
    """An episode's chain is then another one, and still the environment's own."""
    chain = jr.split(getkey(), 3)
    fresh = Draws(fresh_keys=True).reset_state(chain)
    assert len(np.unique(jr.key_data(jnp.concatenate([chain, fresh])), axis=0)) == 6
    for row in range(3):
        alone = Draws(fresh_keys=True).reset_state(chain[row : row + 1])
        np.testing.assert_array_equal(jr.key_data(alone[0]), jr.key_data(fresh[row]))
    # Neither what the chain gives to draw from, nor its next link.
    taken = jnp.concatenate([*advance_keys(chain), fresh])
    assert len(np.unique(jr.key_data(taken), axis=0)) == 9


def test_a_module_with_a_constructor_of_its_own_keeps_the_chain():
    class Sized(StochasticModule):
        size: int = eqx.field(static=True)

        def __init__(self, size):
            self.size = size

        def apply(self, draw, x, rollout_extras=None):
            return output(x, batch=len(x))

    module = Sized(3)
    assert module.fresh_keys is False
    assert jax.jit(lambda module: module)(module) == module


class Advances(ChainedModule):
    """Returns from `advance` whatever it is told to."""

    returned: object

    def initialize_state(self, keys):
        return {"count": jnp.zeros(len(keys), jnp.int32)}

    def reset_state(self, state):
        return state

    def advance(self, state):
        return self.returned

    def apply(self, draw, x, rollout_extras=None):
        return output(x, batch=len(x))


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        ({"count": jnp.zeros(2), "more": 0}, r"\(next_state, draw\), got dict"),
        (jnp.zeros(2), r"\(next_state, draw\), got ArrayImpl \[2\]"),
        (
            (jnp.zeros(2), {"count": jnp.zeros(2)}),
            r"carry like \['count'\] \[2\] first, got \[2\] first",
        ),
    ],
)
def test_advance_returns_the_next_carry_and_a_draw(returned, message, getkey):
    module, x = Advances(returned), jnp.ones((2, 1))
    state = module.initialize_state(jr.split(getkey(), 2))
    with pytest.raises(CompositionError, match=f"expected advance .*{message}"):
        module(state, x)
    with pytest.raises(CompositionError, match=f"expected advance .*{message}"):
        unroll(module, state, x[None], jnp.zeros((1, 2), bool))


def test_a_batch_is_a_number():
    plain = output.__wrapped__  # without the type checker, as users have it
    with pytest.raises(CompositionError, match=r"such as len\(x\), got \(2, 1\)"):
        plain(jnp.ones((2, 1)), batch=(2, 1))


def test_what_is_no_module_is_told_what_to_be_wrapped_in():
    layer = eqx.nn.Linear(2, 2, key=jr.key(0))
    for given, advice in ((layer, r"Lift\(layer\)"), (jnp.tanh, r"Stateless\(fn\)")):
        with pytest.raises(CompositionError, match=advice):
            Sequential([given])
