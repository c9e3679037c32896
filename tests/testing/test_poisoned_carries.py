"""What an old carry holds, a reset leaves behind: NaN, infinities, huge integers.

One environment's carry is poisoned, and reset where the rollout begins. Nothing of it
may reach an output or a gradient, of this environment or of any other: all are those
of the same rollout with the carry that was there before, bit for bit. Keys live on
through a reset, so of an environment with another key it is the others that must not
notice.
"""

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import jax.tree_util as jtu
import numpy as np
import pytest

from helpers import bits, tree_equal
from nnx_ppo_fn import partition_trainable, Sequential, Stateless, unroll
from nnx_ppo_fn._tree import is_key
from nnx_ppo_fn.networks.unroll import unroll_by_step
from testing.shipped_modules import bank, outlines
from wrong_modules import ResetByMultiplication


LENGTH, BATCH, POISONED = 4, 4, 0
IS_FIRST = jnp.zeros((LENGTH, BATCH), bool).at[0, POISONED].set(True).at[2, 1].set(True)

POISONS = {
    "NaN": lambda dtype: jnp.nan,
    "infinity": lambda dtype: jnp.inf,
    "minus infinity": lambda dtype: -jnp.inf,
    "the largest numbers": lambda dtype: jnp.finfo(dtype).max,
}


def poisoned(carry, poison):
    """The carry with one environment's numbers replaced; its keys stay."""

    def replaced(leaf):
        if is_key(leaf):
            return leaf
        if jnp.issubdtype(leaf.dtype, jnp.inexact):
            value = POISONS[poison](leaf.dtype)
        elif leaf.dtype == jnp.bool_:
            value = poison != "minus infinity"
        else:
            limits = jnp.iinfo(leaf.dtype)
            value = limits.min if poison == "minus infinity" else limits.max
        return leaf.at[POISONED].set(value)

    return jtu.tree_map(replaced, carry)


def floats(tree):
    return [leaf for leaf in jtu.tree_leaves(tree) if eqx.is_inexact_array(leaf)]


def weighted_sum(leaf):
    weights = jnp.linspace(0.5, 1.5, leaf.size)
    return jnp.sum(leaf.astype(jnp.float32).ravel() * weights)


@eqx.filter_jit
def of_a_rollout(unrolled, module, carry, xs):
    """Everything that a rollout gives, and the gradients of a number made of it all."""
    parameters, rest = partition_trainable(module)

    def number(differentiated):
        parameters, xs = differentiated
        result = unrolled(eqx.combine(parameters, rest), carry, xs, IS_FIRST)
        everything = floats((result.output, result.metrics, result.next_state))
        everything.append(result.regularization_loss)
        return sum(map(weighted_sum, everything)), result

    gradients, result = eqx.filter_grad(number, has_aux=True)((parameters, xs))
    return {"result": result, "gradient": gradients}


def expect_untouched(module, x, key):
    """Fails if a poisoned carry shows in anything that a rollout gives."""
    xs = jtu.tree_map(lambda leaf: jnp.stack([leaf, *[leaf[::-1]] * (LENGTH - 1)]), x)
    born = module.initialize_state(jr.split(key, BATCH))
    carry = eqx.filter_jit(lambda state, x: module(state, x).next_state)(born, x)
    for unrolled in (unroll, unroll_by_step):
        expected = of_a_rollout(unrolled, module, carry, xs)
        for poison in POISONS:
            old = poisoned(carry, poison)
            assert not tree_equal(old, carry)
            found = of_a_rollout(unrolled, module, old, xs)
            pairs = zip(
                jtu.tree_leaves_with_path(expected), jtu.tree_leaves(found), strict=True
            )
            for (path, clean), leaf in pairs:
                place = f"{poison}, {unrolled.__name__}: {jtu.keystr(path)}"
                np.testing.assert_array_equal(bits(leaf), bits(clean), err_msg=place)
                if eqx.is_inexact_array(leaf):
                    assert np.all(np.isfinite(leaf)), place


def carries(module, kind):
    """Whether a module carries keys, or numbers."""
    born = eqx.filter_eval_shape(
        lambda module, keys: module.initialize_state(keys),
        module,
        jr.split(jr.key(0), BATCH),
    )
    return any(is_key(leaf) is (kind == "keys") for leaf in jtu.tree_leaves(born))


def groups(kind, count):
    names = [name for name, module in outlines().items() if carries(module, kind)]
    return [names[start::count] for start in range(count)]


@pytest.mark.parametrize("names", groups("numbers", 2), ids=lambda names: names[0])
def test_a_reset_leaves_nothing_of_an_old_carry(names, getkey):
    module, x = bank(names, key=getkey())
    expect_untouched(module, x, getkey())


def of_the_others(everything):
    """The rows of all environments but the poisoned one."""
    result, (_, xs) = everything["result"], everything["gradient"]
    over_time = (result.output, result.metrics, result.regularization_loss, xs)
    others = [row for row in range(BATCH) if row != POISONED]
    return (
        jtu.tree_map(lambda leaf: leaf[:, jnp.array(others)], over_time),
        jtu.tree_map(lambda leaf: leaf[jnp.array(others)], result.next_state),
    )


@pytest.mark.parametrize("names", groups("keys", 3), ids=lambda names: names[0])
def test_nobody_notices_the_key_of_another(names, getkey):
    module, x = bank(names, key=getkey())
    xs = jtu.tree_map(lambda leaf: jnp.stack([leaf, *[leaf[::-1]] * (LENGTH - 1)]), x)
    carry = module.initialize_state(jr.split(getkey(), BATCH))
    largest = jr.wrap_key_data(jnp.full(2, 2**32 - 1, jnp.uint32))

    def with_the_largest_key(leaf):
        return leaf.at[POISONED].set(largest) if is_key(leaf) else leaf

    old = jtu.tree_map(with_the_largest_key, carry)
    clean = of_a_rollout(unroll, module, carry, xs)
    found = of_a_rollout(unroll, module, old, xs)
    assert not tree_equal(found["result"], clean["result"])
    assert tree_equal(of_the_others(found), of_the_others(clean))
    assert all(np.all(np.isfinite(leaf)) for leaf in floats(found))


def test_a_reset_by_multiplication_is_seen(getkey):
    module = Sequential((Stateless(jnp.tanh), ResetByMultiplication(3)))
    with pytest.raises(AssertionError, match=r"NaN, unroll: \['result'\]"):
        expect_untouched(module, jr.normal(getkey(), (BATCH, 3)), getkey())
