import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from nnx_ppo_fn._counter import Counter


words = st.one_of(
    st.integers(0, 2**32 - 1), st.sampled_from([0, 1, 2**31 - 1, 2**31, 2**32 - 1])
)
add = jax.jit(Counter.add)


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 2**63), words)
def test_a_sum_is_exact(start, number):
    counter = add(Counter.of(start), np.uint32(number))
    assert int(counter) == counter.to_int() == start + number
    np.testing.assert_allclose(counter.as_float(), float(start + number), rtol=2e-7)


@pytest.mark.parametrize("boundary", [2**24, 2**31, 2**32, 2**53])
def test_counting_by_one_across_a_boundary(boundary):
    def step(counter, _):
        counter = counter.add(1)
        return counter, counter

    _, counts = jax.lax.scan(step, Counter.of(boundary - 3), None, length=6)
    high, low = np.asarray(counts.high, np.uint64), np.asarray(counts.low, np.uint64)
    np.testing.assert_array_equal(
        high * 2**32 + low, np.arange(boundary - 2, boundary + 4, dtype=np.uint64)
    )


def test_a_counter_of_any_shape_takes_scalars_and_arrays():
    counter = Counter.zero((2, 3)).add(2**32 - 1).add(jnp.ones((2, 3), jnp.int32))
    np.testing.assert_array_equal(counter.high, np.ones((2, 3)))
    np.testing.assert_array_equal(counter.low, np.zeros((2, 3)))
    np.testing.assert_array_equal(counter.as_float(), np.full((2, 3), 2.0**32))
    assert not jnp.any(counter.is_zero()) and jnp.all(Counter.zero((2,)).is_zero())


def test_counters_map():
    counters = jax.vmap(lambda n: Counter.of(2**32 - 2).add(n))(
        jnp.arange(4, dtype=jnp.uint32)
    )
    np.testing.assert_array_equal(counters.high, [0, 0, 1, 1])
    np.testing.assert_array_equal(counters.low, [2**32 - 2, 2**32 - 1, 0, 1])


@pytest.mark.parametrize("number", [-1, 2**32])
def test_a_python_number_out_of_range_is_refused(number):
    with pytest.raises(ValueError, match=r"0 to 2\*\*32 - 1, got"):
        Counter.zero().add(number)


def test_a_start_out_of_range_is_refused():
    with pytest.raises(ValueError, match=r"0 to 2\*\*64 - 1, got -1"):
        Counter.of(-1)
