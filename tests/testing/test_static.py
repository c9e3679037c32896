"""The part of the laws that needs no numbers."""

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import pytest
from beartype import beartype
from jaxtyping import Array, Float, jaxtyped, TypeCheckError

from nnx_ppo_fn import (
    Container,
    Dense,
    LSTM,
    Normalizer,
    NormalTanhSampler,
    output,
    PPOAdapter,
    Sequential,
    StatefulModule,
    StatelessModule,
    VariationalBottleneck,
)
from nnx_ppo_fn.networks._errors import CompositionError
from nnx_ppo_fn.testing import check_structure, LawViolation
from wrong_modules import KeyConsumedTwice, KeyHeldByModule, KeyNotAdvanced


SHAPES = jax.ShapeDtypeStruct((1, 3), jnp.float32)


def network(key, *extra):
    return Sequential(
        [
            Normalizer(3),
            LSTM(3, 4, key=key),
            *extra,
            VariationalBottleneck(2),
            PPOAdapter(NormalTanhSampler(0.1), Dense(2, 1, key=key)),
        ]
    )


def test_a_network_from_shapes_alone(getkey):
    check_structure(network(getkey()), SHAPES)


def test_traced_networks(getkey):
    # As when training states are made for many seeds at once.
    def build(key):
        made = network(key)
        check_structure(made, SHAPES)
        return eqx.filter(made[1], eqx.is_array)

    cells = eqx.filter_vmap(build)(jr.split(getkey(), 2))
    assert all(leaf.shape[0] == 2 for leaf in jax.tree.leaves(cells))


@pytest.mark.parametrize(
    ("module", "law"),
    [
        (KeyHeldByModule(jr.key(0)), "provenance"),
        (KeyConsumedTwice(), "provenance"),
        (KeyNotAdvanced(), "provenance"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_names_the_child(module, law, getkey):
    with pytest.raises(LawViolation) as caught:
        check_structure(network(getkey(), module), SHAPES)
    assert caught.value.law == law
    assert caught.value.place == ("Sequential[2]",)
    assert caught.value.module == type(module).__name__


def test_freshness_by_name():
    # What would be drawn twice is one law's concern, what stays in the carry another's.
    with pytest.raises(LawViolation) as caught:
        check_structure(KeyNotAdvanced(), SHAPES, laws=["freshness"])
    assert caught.value.law == "freshness"
    assert caught.value.leaf == "state"


def test_inputs_that_do_not_fit(getkey):
    wrong = jax.ShapeDtypeStruct((8, 5), jnp.float32)
    with pytest.raises(CompositionError, match=r"Sequential\[0\] \(Normalizer\)"):
        check_structure(network(getkey()), wrong)
    with pytest.raises(ValueError, match="leading axis B"):
        check_structure(network(getkey()), {"a": SHAPES, "b": wrong})


class Columns(Container):
    """Joins along what is the features' axis in a step only."""

    inner: object

    def children(self):
        return {"inner": self.inner}

    def route(self, call, x):
        return jnp.concatenate([x, call("inner", x)], axis=1)


def test_a_route_that_counts_axes_from_the_start_is_told_so(getkey):
    with pytest.raises(LawViolation, match=r"Count axes from the end") as caught:
        check_structure(Columns(Dense(3, 3, key=getkey())), SHAPES)
    assert caught.value.law == "unroll"


class Forgets(StatefulModule):
    """Does not say what the next carry is."""

    def initialize_state(self, keys):
        return jnp.zeros(len(keys))

    def reset_state(self, state):
        return jnp.zeros(len(state))

    def __call__(self, state, x, rollout_extras=None):
        return output(x + state[:, None], batch=len(x))


def test_a_step_without_a_next_carry_is_told_how_to_give_it():
    with pytest.raises(LawViolation, match="Pass next_state=... to output") as caught:
        check_structure(Forgets(), SHAPES)
    assert caught.value.law == "carry"


class Typed(StatelessModule):
    """Declares what its type checker refuses."""

    @jaxtyped(typechecker=beartype)
    def __call__(self, state, x: Float[Array, "B 4"], rollout_extras=None):
        return output(x, batch=len(x))


def test_what_a_type_checker_finds_in_a_module_by_itself_is_one_sentence():
    message = r"^Typed: expected x of type .*Float\[Array, 'B 4'\], got f32\[5,3\]$"
    with pytest.raises(CompositionError, match=message) as caught:
        check_structure(Typed(), SHAPES)
    assert isinstance(caught.value.__cause__, TypeCheckError)
