"""Matrix products timed by themselves."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks import alone
from benchmarks.alone import seconds_alone
from benchmarks.products import products
from benchmarks.timing import best


@pytest.fixture(autouse=True)
def in_no_time(monkeypatch):
    monkeypatch.setattr(alone, "_SECONDS", 0.0)
    alone._seconds_of.cache_clear()
    yield
    alone._seconds_of.cache_clear()


def of(function, *shapes, dtype=jnp.float32):
    arguments = [jax.ShapeDtypeStruct(shape, dtype) for shape in shapes]
    return products(jax.make_jaxpr(function)(*arguments))


def repeated(length):
    def repeat(x, w):
        return jax.lax.scan(lambda x, _: (x @ w, None), x, length=length)[0]

    return of(repeat, (3, 4), (4, 4))


def test_seconds_are_those_of_all_runs():
    once, often = seconds_alone(repeated(1)), seconds_alone(repeated(70))
    assert once > 0
    # The same operation, so it is timed once.
    assert alone._seconds_of.cache_info().misses == 1
    assert often == pytest.approx(70 * once, rel=1e-9)
    both = seconds_alone([*repeated(1), *repeated(2)])
    assert both == pytest.approx(3 * once, rel=1e-9)


def test_no_products_take_no_time():
    assert seconds_alone(of(jnp.add, (3, 4), (3, 4))) == 0


def contract(a, b):
    return jnp.einsum("bijk,bkjl->bil", a, b, precision="highest")


def test_both_orders_are_the_same_product():
    (one,) = of(contract, (2, 3, 4, 5), (2, 5, 4, 6))
    order, other = alone._orders(one.operation)
    rng = np.random.default_rng(0)
    operands = [
        jnp.asarray(rng.normal(size=operand.shape), jnp.float32)
        for operand in order.operands
    ]
    result, transpose = order(*operands), other(*operands[::-1])
    assert {result.shape, transpose.shape} == {(2, 3, 6), (2, 6, 3)}
    np.testing.assert_allclose(transpose.swapaxes(1, 2), result, rtol=1e-5, atol=1e-5)
    assert order.flops == other.flops == 2 * 2 * 3 * 6 * (4 * 5)


def test_the_faster_order_counts(monkeypatch):
    (one,) = of(contract, (2, 3, 4, 5), (2, 5, 4, 6))
    order, other = alone._orders(one.operation)
    monkeypatch.setattr(alone, "_seconds_of_copies", {order: 3.0, other: 2.0}.get)
    monkeypatch.setattr(alone, "_seconds_in_a_loop", {order: 4.0, other: 5.0}.get)
    assert seconds_alone([one]) == 2.0
    assert seconds_alone([one._replace(runs=3, loops=("scan",))]) == 12.0


def test_other_types_and_convolutions_are_timed():
    half = of(jnp.matmul, (3, 4), (4, 5), dtype=jnp.bfloat16)
    assert half[0].operation.result.dtype == jnp.bfloat16
    assert seconds_alone(half) > 0

    def convolve(image, kernel):
        return jax.lax.conv(image, kernel, (1, 1), "VALID")

    assert seconds_alone(of(convolve, (2, 3, 8, 8), (7, 3, 3, 3))) > 0


def test_the_shortest_call_counts_but_for_the_first():
    seconds = iter([1.0, 4.0, 3.0, 5.0, 2.0, 0.5])
    assert best(lambda: next(seconds), seconds=14.0) == 2.0
    assert next(seconds) == 0.5
