"""The law of slicing: what a row gives, whoever shares its batch."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import pytest

from law_checks import broken, passes, X
from nnx_ppo_fn import Stateless
from nnx_ppo_fn.networks.types import output, StatefulModule


def minus_the_largest(x):
    return x - jnp.max(x)


def minus_the_first(x):
    return x - x[:1]


def plus_the_next(x):
    return x + 1e-3 * jnp.roll(x, 1, axis=0)


def a_trace_of_the_mean(x):
    return x + 1e-4 * jnp.mean(x, axis=0, keepdims=True)


def clipped_by_the_norm(x):
    return x * jnp.minimum(1.0, 100.0 / jnp.linalg.norm(x))


def cleared_if_any_is_nan(x):
    return jnp.where(jnp.any(jnp.isnan(x)), 0.0, x)


def cleared_if_any_is_large(x):
    return jnp.where(jnp.any(jnp.abs(x) > 500.0), 0.0, x)


def mirrored_unless_all_are_far_below(x):
    return jnp.where(jnp.any(x < -500.0), -x, x)


@pytest.mark.parametrize(
    "function",
    [
        minus_the_largest,
        minus_the_first,
        plus_the_next,
        a_trace_of_the_mean,
        clipped_by_the_norm,
        cleared_if_any_is_nan,
        cleared_if_any_is_large,
        mirrored_unless_all_are_far_below,
    ],
)
def test_rows_that_look_at_other_rows(function):
    violation = broken(Stateless(function), "slicing")
    assert "a row looks at other rows" in violation.cause


class LeaksThroughTheCarry(StatefulModule[Any, Any, Any]):
    """Rows never meet in the input, but a little in the carry."""

    def initialize_state(self, keys):
        return jnp.zeros((len(keys), 3))

    def reset_state(self, state):
        return jnp.zeros_like(state)

    def __call__(self, state, x, rollout_extras=None):
        shared = 1e-5 * jnp.mean(state, axis=0, keepdims=True)
        return output(x + shared, batch=len(x), next_state=0.5 * state + x)


def test_rows_that_look_at_other_rows_of_the_carry():
    assert "carry" in broken(LeaksThroughTheCarry(), "slicing").problem


def test_numbers_from_the_host_are_among_the_causes():
    assert "numpy.random" in broken(Stateless(minus_the_first), "slicing").cause


def without_infinities(x):
    return jnp.tanh(jnp.nan_to_num(x))


def refuses_what_is_large(x):
    return eqx.error_if(x, jnp.any(jnp.abs(x) > 500.0), "too large")


def newton(x):
    """A root by iteration, as many turns as the slowest row needs."""

    def one(number):
        def step(carry):
            root, _ = carry
            better = 0.5 * (root + number / root)
            return better, jnp.abs(better - root)

        start = (number, jnp.full_like(number, jnp.inf))
        return jax.lax.while_loop(lambda c: jnp.any(c[1] > 1e-3), step, start)[0]

    return jax.vmap(one)(1.0 + jnp.square(x))


@pytest.mark.parametrize(
    "function", [without_infinities, refuses_what_is_large, newton]
)
def test_no_false_alarm(function):
    passes(Stateless(function), laws=["slicing"])


def test_what_only_the_merged_rows_of_an_unroll_show():
    def depends_on_the_number_of_rows(x):
        return jnp.where(len(x) > 10, 2.0, 1.0) * x

    violation = broken(Stateless(depends_on_the_number_of_rows), "unroll", X)
    assert "Rows may come from any step" in violation.cause
    assert "reset" not in violation.cause
