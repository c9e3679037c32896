"""Which products of a step become one, and that the results stay what they were."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from jax.extend.core import jaxprs_in_params

from nnx_ppo_fn.networks._lean_scan import lean_scan
from nnx_ppo_fn.networks._sums_of_products import sums_of_products
from nnx_ppo_fn.networks._taps import with_tap


LENGTH, BATCH, SIZE = 5, 3, 4
A, B, C = (jr.normal(jr.key(n), (SIZE, SIZE)) / 2 for n in range(3))
HALF = A.astype(jnp.bfloat16)
WIDE = jr.normal(jr.key(3), (2 * SIZE, SIZE)) / 2
MASK, OTHER_MASK = (jr.bernoulli(jr.key(n), 0.5, (BATCH, SIZE)) for n in (4, 5))


def by_rows(x, matrix):
    return jax.lax.dot_general(x, matrix, (((1,), (1,)), ((), ())))


def halved(x):
    return x.astype(jnp.bfloat16)


def wide(x):
    return x.astype(jnp.float32)


@jax.custom_jvp
def tenth(x):
    """The same, with a tenth of the gradient."""
    return x


@tenth.defjvp
def _(primals, tangents):
    return tenth(*primals), tangents[0] / 10


def square(x):
    return jnp.concatenate([x, x[:1]])


def masked(x, mask=MASK, by=0):
    return jax.lax.select(mask, x, jnp.full_like(x, by))


def unmasked(x):
    return jax.lax.select(MASK, jnp.zeros_like(x), x)


JOINED = {
    "two": lambda h, x: h @ A + x @ B,
    "one matrix twice": lambda h, x: h @ A + x @ A,
    "transposed": lambda h, x: by_rows(h, A) + by_rows(x, B),
    "of different lengths": lambda h, x: h @ A + jnp.concatenate([x, h], 1) @ WIDE,
    "with others between": lambda h, x: jnp.tanh(x + (h @ A + C[:3]) + (x @ B + C[1:])),
    "in new axes": lambda h, x: ((h @ A)[None] + (x @ B)[None])[0],
    "in another shape": lambda h, x: ((h @ A).reshape(-1) + (x @ B).ravel()).reshape(
        3, 4
    ),
    "behind one mask": lambda h, x: masked(h @ A) + masked(x @ B),
    "behind the other side": lambda h, x: unmasked(h @ A) + unmasked(x @ B),
    "with a tap": lambda h, x: with_tap(h @ A, x) + x @ B,
    "a long way": lambda h, x: jnp.sin(h + masked(x + masked(h @ A) + masked(x @ B))),
    "three": lambda h, x: h @ A + x @ B + jnp.tanh(h) @ C,
}

APART = {
    "behind two masks": lambda h, x: masked(h @ A) + masked(x @ B, OTHER_MASK),
    "on two sides of a mask": lambda h, x: masked(h @ A) + unmasked(x @ B),
    "behind a mask, and not": lambda h, x: masked(h @ A) + x @ B,
    "masked by a number": lambda h, x: masked(h @ A, by=1) + masked(x @ B, by=1),
    "used twice": lambda h, x: (p := h @ A) + x @ B + jnp.tanh(p),
    "added to itself": lambda h, x: (p := h @ A) + p,
    "subtracted": lambda h, x: h @ A - x @ B,
    "scaled": lambda h, x: 2 * (h @ A) + x @ B,
    "behind something else": lambda h, x: jnp.tanh(h @ A) + jnp.tanh(x @ B),
    "one after the other": lambda h, x: (h @ A) @ B + x,
    "of what is no constant": lambda h, x: h @ (x.T @ h) + x @ B,
    "constants on the left": lambda h, x: (A @ h.T).T + (B @ x.T).T,
    "repeated": lambda h, x: (h @ A)[:, None].repeat(2, 1).sum(1) + x @ B,
    "in half precision": lambda h, x: wide(halved(h) @ HALF) + wide(halved(x) @ HALF),
    "half in half precision": lambda h, x: (
        jnp.dot(halved(h), HALF, preferred_element_type=jnp.float32) + x @ B
    ),
    "behind a scalar mask": lambda h, x: (
        jax.lax.select(True, h @ A, jnp.zeros((BATCH, SIZE))) + x @ B
    ),
    "in another order": lambda h, x: (
        (h @ A).ravel() + (x @ B).ravel(order="F")
    ).reshape(BATCH, SIZE),
    "in two ways": lambda h, x: h @ A + by_rows(x, B),
    "along two axes": lambda h, x: jnp.sum(
        (square(h) @ A)[None] + (square(x) @ B)[:, None], axis=0
    )[:BATCH],
    "in the tap": lambda h, x: with_tap(x, h @ A) + x @ B,
    "with a derivative of its own": lambda h, x: tenth(h @ A) + x @ B,
}


def products(function, *given):
    """How many products there are, wherever they stand."""

    def count(jaxpr):
        return sum(
            (equation.primitive.name == "dot_general")
            + sum(
                count(getattr(inner, "jaxpr", inner))
                for inner in jaxprs_in_params(equation.params)
            )
            for equation in jaxpr.eqns
        )

    return count(jax.make_jaxpr(function)(*given).jaxpr)


def scanned(scan, step):
    def run(h, xs):
        last, outputs = scan(lambda h, x: (y := step(h, x), (y,)), h, xs)
        (output,) = outputs if scan is jax.lax.scan else (outputs.stacked(0),)
        return last, output

    return run


GIVEN = jr.normal(jr.key(7), (BATCH, SIZE)), jr.normal(jr.key(8), (LENGTH, BATCH, SIZE))


@pytest.mark.parametrize("name", [*JOINED, *APART])
def test_results_are_those_of_jax(name):
    step = (JOINED | APART)[name]
    ours, theirs = (
        jax.jit(scanned(scan, step))(*GIVEN) for scan in (lean_scan, jax.lax.scan)
    )
    for one, other in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", JOINED)
def test_products_that_are_added_up_are_one(name):
    assert products(JOINED[name], GIVEN[0], GIVEN[1][0]) > 1
    assert products(scanned(lean_scan, JOINED[name]), *GIVEN) == 1


@pytest.mark.parametrize("name", APART)
def test_others_stay_apart(name):
    there = len(set_of_products(APART[name]))
    assert products(scanned(lean_scan, APART[name]), *GIVEN) == there


def views(atom):
    return atom, ()


def set_of_products(step):
    """The different products of a step."""
    jaxpr = jax.make_jaxpr(step)(GIVEN[0], GIVEN[1][0]).jaxpr
    return {
        (*map(str, one.invars), str(one.params))
        for one in jaxpr.eqns
        if one.primitive.name == "dot_general"
    }


def test_what_is_read_from_outside_is_no_part_of_a_sum():
    def step(h, x):
        product = h @ A
        return product + x @ B, (product,)

    _, outputs = lean_scan(step, *GIVEN)
    _, (theirs,) = jax.lax.scan(step, *GIVEN)
    np.testing.assert_allclose(outputs.stacked(0), theirs, rtol=1e-5, atol=1e-5)
    assert products(lambda *given: lean_scan(step, *given)[0], *GIVEN) == 2


def test_the_weight_is_made_before_the_loop():
    def weight_of(function):
        traced = jax.make_jaxpr(function)(GIVEN[0], GIVEN[1][0])
        jaxpr = traced.jaxpr
        constants = dict(zip(jaxpr.constvars, traced.consts, strict=True))
        (found,) = sums_of_products(jaxpr.eqns, jaxpr.outvars, constants, list, views)
        return found.weight

    np.testing.assert_array_equal(
        weight_of(lambda h, x: h @ A + x @ B), np.concatenate([A, B])
    )
    run = scanned(lean_scan, JOINED["two"])
    (loop,) = [
        one for one in jax.make_jaxpr(run)(*GIVEN).eqns if one.primitive.name == "scan"
    ]
    shapes = [variable.aval.shape for variable in loop.invars]
    assert (2 * SIZE, SIZE) in shapes and (SIZE, SIZE) not in shapes


def test_gradients_go_through():
    def loss(scan):
        run = scanned(scan, JOINED["a long way"])
        return lambda *given: sum(jnp.sum(jnp.sin(part)) for part in run(*given))

    ours, theirs = (
        jax.jit(jax.grad(loss(scan), argnums=(0, 1)))(*GIVEN)
        for scan in (lean_scan, jax.lax.scan)
    )
    for one, other in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)
