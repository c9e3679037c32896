"""A delay, against lists of what each environment has seen."""

import functools as ft
from collections import OrderedDict
from typing import NamedTuple

import jax
import jax.numpy as jnp
import jax.random as jr
import jax.tree_util as jtu
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from helpers import tree_equal
from nnx_ppo_fn import CompositionError, Delay, NonTrainable, partition_trainable
from nnx_ppo_fn.networks.delay import DelayState
from nnx_ppo_fn.networks.unroll import reset_where, unroll, unroll_by_step


LENGTH, BATCH = 4, 3
KEYS = jr.split(jr.key(0), BATCH)


class Reference:
    """A delay of one environment that remembers everything since its episode began."""

    def __init__(self, k_steps, initial):
        self.k_steps, self.initial = k_steps, initial
        self.seen = []

    def step(self, x, is_first):
        if is_first:
            self.seen = []
        early = len(self.seen) < self.k_steps
        late = self.initial if early else self.seen[-self.k_steps]
        self.seen.append(x)
        return late

    @property
    def buffer(self):
        slots = [self.initial] * self.k_steps
        for step, x in enumerate(self.seen):
            slots[step % self.k_steps] = x
        return slots

    @property
    def index(self):
        return len(self.seen) % self.k_steps


@ft.cache
def compiled(k_steps):
    """`unroll` and the loop over steps, for one number `[T, B]`."""
    delay = Delay(0.0, k_steps, -1.5)
    return jax.jit(ft.partial(unroll, delay)), jax.jit(
        ft.partial(unroll_by_step, delay)
    )


@pytest.mark.parametrize("k_steps", [1, 3, LENGTH, 6, 9])
def test_an_unroll_is_what_lists_would_give(k_steps):
    delay = Delay(0.0, k_steps, -1.5)

    @given(
        st.lists(st.integers(0, 2**BATCH - 1), min_size=3 * LENGTH, max_size=3 * LENGTH)
    )
    @settings(max_examples=25, deadline=None)
    def check(patterns):
        shape = (3, LENGTH, BATCH)
        bits = np.array([[p >> b & 1 for b in range(BATCH)] for p in patterns], bool)
        is_first, xs = bits.reshape(shape), np.arange(36, dtype=np.float32) + 1
        xs = xs.reshape(shape)
        references = [Reference(k_steps, np.float32(-1.5)) for _ in range(BATCH)]
        state = delay.initialize_state(KEYS)
        for chunk_xs, chunk_first in zip(xs, is_first, strict=True):
            fast, loop = (
                run(state, chunk_xs, chunk_first) for run in compiled(k_steps)
            )
            expected = [
                [one.step(x, first) for one, x, first in zip(*step, strict=True)]
                for step in zip(
                    [references] * LENGTH, chunk_xs, chunk_first, strict=True
                )
            ]
            np.testing.assert_array_equal(fast.output, expected)
            assert tree_equal(fast, loop)
            state = fast.next_state
            np.testing.assert_array_equal(state.buffer, [r.buffer for r in references])
            np.testing.assert_array_equal(state.index, [r.index for r in references])

    check()


def test_a_step_writes_one_slot(getkey):
    delay = Delay(jnp.zeros(2), 3)
    state, xs = delay.initialize_state(KEYS), jr.normal(getkey(), (4, BATCH, 2))
    assert state.buffer.shape == (BATCH, 3, 2) and state.index.dtype == jnp.int32
    for step, x in enumerate(xs):
        result = delay(state, x)
        expected = state.buffer.at[:, step % 3].set(x)
        np.testing.assert_array_equal(result.next_state.buffer, expected)
        state = result.next_state
    np.testing.assert_array_equal(result.output, xs[0])
    assert result.rollout_extras is None and not result.metrics
    np.testing.assert_array_equal(result.regularization_loss, np.zeros(BATCH))


def test_a_rollout_of_one_step(getkey):
    delay = Delay(jnp.zeros(2), 2)
    state = delay.initialize_state(KEYS)
    for first in (False, True):
        x, is_first = jr.normal(getkey(), (BATCH, 2)), jnp.full(BATCH, first)
        stepped = delay(reset_where(delay, is_first, state), x)
        unrolled = unroll(delay, state, x[None], is_first[None])
        np.testing.assert_array_equal(unrolled.output[0], stepped.output)
        assert tree_equal(unrolled.next_state, stepped.next_state)
        state = stepped.next_state


def test_gradients_flow_back_through_the_delay(getkey):
    k_steps, shape = 2, (6, BATCH, 2)
    delay = Delay(jnp.zeros(2), k_steps)
    is_first = jnp.zeros(shape[:2], bool).at[3, 1].set(True).at[0, 2].set(True)
    weights, xs = jr.normal(getkey(), shape), jr.normal(getkey(), shape)
    state = unroll(delay, delay.initialize_state(KEYS), xs, is_first).next_state

    def loss(xs, buffer):
        result = unroll(delay, DelayState(buffer, state.index), xs, is_first)
        return jnp.sum(weights * result.output)

    by_x, by_buffer = jax.grad(loss, argnums=(0, 1))(xs, state.buffer)
    expected = np.zeros(shape, np.float32)
    before = np.zeros((k_steps, BATCH, 2), np.float32)
    for time in range(6):
        for row in range(BATCH):
            source = time - k_steps
            if np.any(is_first[max(source + 1, 0) : time + 1, row]):
                continue
            target = expected if source >= 0 else before
            target[source, row] += weights[time, row]
    np.testing.assert_array_equal(by_x, expected)
    # Six steps in, the oldest of two inputs is in slot 0; row 1 began at step 3.
    np.testing.assert_array_equal(state.index, [0, 1, 0])
    slots = before.swapaxes(0, 1)
    slots[1] = slots[1, ::-1]
    np.testing.assert_array_equal(by_buffer, slots)


class Body(NamedTuple):
    """Part of an observation."""

    angle: jax.Array
    touching: jax.Array


def observation(rows):
    return OrderedDict(
        speed=jnp.arange(rows, dtype=jnp.float32) + 1,
        body=Body(jnp.ones((rows, 2, 2), jnp.bfloat16), jnp.ones(rows, jnp.bool_)),
        count=jnp.arange(rows, dtype=jnp.uint8) + 7,
    )


def test_trees_of_any_dtype_go_through():
    sample = jtu.tree_map(
        lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), observation(1)
    )
    delay = Delay(sample, 1, initial_value=1)
    x = observation(BATCH)
    for run in (delay, jax.jit(delay)):
        early = run(delay.initialize_state(KEYS), x)
        assert all(
            np.all(np.asarray(leaf) == 1) for leaf in jtu.tree_leaves(early.output)
        )
        late = run(early.next_state, x).output
        assert list(late) == ["body", "count", "speed"]
        assert tree_equal(late, dict(x))
        assert late["count"].dtype == jnp.uint8
        assert late["body"].touching.dtype == jnp.bool_
        assert late["body"].angle.dtype == jnp.bfloat16


def test_a_sample_may_be_numbers():
    state = Delay({"a": 1.0, "b": 2, "c": True}, 2).initialize_state(KEYS)
    dtypes = {name: leaf.dtype for name, leaf in state.buffer.items()}
    assert dtypes == {"a": jnp.float32, "b": jnp.int32, "c": jnp.bool_}
    assert {leaf.shape for leaf in state.buffer.values()} == {(BATCH, 2)}


def test_the_initial_value_can_be_swept_and_does_not_train():
    def first(value):
        delay = Delay(jnp.zeros(2), 1, value)
        assert not jtu.tree_leaves(partition_trainable(delay)[0])
        return delay(delay.initialize_state(KEYS), jnp.ones((BATCH, 2))).output

    values = jnp.array([0.5, -2.0])
    np.testing.assert_array_equal(
        jax.vmap(first)(values), np.tile(values[:, None, None], (1, BATCH, 2))
    )
    assert isinstance(Delay(0.0, 1, jnp.array(0.5)).initial_value, NonTrainable)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((0.0, 0), ValueError, "k_steps must be at least 1, got 0"),
        (({}, 1), CompositionError, "at least one array in sample_input, got {}"),
        (({"k": jr.key(0)}, 1), CompositionError, r"x\['k'\] holds random keys"),
        (({"k": "a"}, 1), CompositionError, r"x\['k'\] to be an array.*got str"),
        (((0, 0.0), 1, 0.5), CompositionError, r"0.5 does not fit into x\[0\].*int32"),
        ((True, 1, 2), CompositionError, "2 does not fit into x, which holds bool"),
        ((np.uint8(0), 1, -1), CompositionError, "-1 does not fit into x.*uint8"),
        ((0, 1, float("nan")), CompositionError, "nan does not fit into x.*int32"),
        ((0, 1, 2**24 + 1), CompositionError, "does not fit"),
        ((0, 1, jnp.array(1.0)), CompositionError, "only goes with floating-point"),
        ((0.0, 1, jnp.ones(3)), CompositionError, r"one number, got an array \[3\]"),
    ],
)
def test_delays_that_make_no_sense_are_refused(arguments, error, message):
    with pytest.raises(error, match=message):
        Delay(*arguments)


@pytest.mark.parametrize(
    ("x", "message"),
    [
        ({"a": jnp.ones((2, 3))}, r"expected x\['a'\], x\['b'\].*x\['b'\] is missing"),
        (
            {"a": jnp.ones((2, 3)), "b": jnp.ones(2), "c": jnp.ones(2)},
            r"x\['c'\] is not known",
        ),
        (
            {"a": jnp.ones((2, 4)), "b": jnp.ones(2)},
            r"expected x\['a'\] float32\[B, 3\].*got float32\[2, 4\]",
        ),
        (
            {"a": jnp.ones((2, 3)), "b": jnp.ones(2, jnp.int32)},
            r"expected x\['b'\] float32\[B\].*got int32\[2\]",
        ),
    ],
)
def test_an_input_unlike_the_sample_is_refused(x, message):
    delay = Delay({"a": jnp.zeros(3), "b": 0.0}, 2)
    with pytest.raises(CompositionError, match=message):
        delay(delay.initialize_state(KEYS[:2]), x)


def test_a_list_is_not_a_tuple():
    delay = Delay((0.0,), 2)
    with pytest.raises(CompositionError, match="like Delay's sample_input"):
        delay(delay.initialize_state(KEYS), [jnp.ones(BATCH)])


def test_a_boolean_fills_a_buffer_of_booleans():
    state = Delay(False, 1, True).initialize_state(KEYS)
    assert state.buffer.dtype == jnp.bool_ and np.all(state.buffer)


def test_an_input_has_the_rows_of_the_carry():
    delay = Delay(jnp.zeros(3), 2)
    state = delay.initialize_state(KEYS)
    message = rf"expected x float32\[{BATCH}, 3\], a row for each of the carry's"
    with pytest.raises(CompositionError, match=message):
        delay(state, jnp.ones((1, 3)))
    message = rf"expected x float32\[2, {BATCH}, 3\], a row for each of the carry's"
    with pytest.raises(CompositionError, match=message):
        delay.unroll(state, jnp.ones((2, 1, 3)), jnp.zeros((2, BATCH), bool))


def test_no_steps_change_nothing():
    delay = Delay(jnp.zeros(3), 2)
    state = delay.initialize_state(KEYS)
    xs, is_first = jnp.ones((0, BATCH, 3)), jnp.zeros((0, BATCH), bool)
    result = unroll(delay, state, xs, is_first)
    assert result.output.shape == xs.shape and tree_equal(result.next_state, state)
