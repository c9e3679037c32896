"""Whole numbers as inputs, in a process without a type checker, as users have it."""

import functools as ft
import json
import sys

import equinox as eqx
import jax
import jax.extend as jex
import jax.numpy as jnp
import jax.random as jr
import jax.tree_util as jtu

from kernels import AS_USERS
from nnx_ppo_fn import CompositionError, partition_trainable, unroll
from nnx_ppo_fn.networks.unroll import unroll_by_step
from testing.shipped_modules import bank, MODULES


jax.config.update("jax_disable_most_optimizations", True)

DTYPES = ("uint8", "bool")
LENGTH, BATCH = 3, 4
IS_FIRST = jnp.zeros((LENGTH, BATCH), bool).at[1, 0].set(True)


def whole(x, dtype):
    """Small whole numbers in the place of the floats of `x`."""

    def rounded(leaf):
        if not jnp.issubdtype(leaf.dtype, jnp.floating):
            return leaf
        return jnp.round(jnp.abs(3 * leaf.astype(jnp.float32))).astype(dtype)

    return jtu.tree_map(rounded, x)


def first_rows(x):
    return jtu.tree_map(lambda leaf: leaf[:BATCH], x)


def over_time(x):
    return jtu.tree_map(
        lambda leaf: jnp.stack([jnp.roll(leaf, t, axis=0) for t in range(LENGTH)]), x
    )


def equations(jaxpr):
    for equation in jaxpr.eqns:
        yield equation
        for inner in jex.core.jaxprs_in_params(equation.params):
            yield from equations(inner)


def cut_off(module, x):
    """How often a module makes whole numbers of others, or how it refuses the input.

    - `module`, `x`: with shapes in the place of arrays.
    """

    def both(module, carry, x):
        return module(carry, x), unroll(module, carry, over_time(x), IS_FIRST)

    carry = eqx.filter_eval_shape(
        lambda module: module.initialize_state(jr.split(jr.key(0), BATCH)), module
    )
    try:
        jaxpr, _, _ = eqx.filter_make_jaxpr(both)(module, carry, x)
    except CompositionError as error:
        return str(error)
    return sum(
        equation.primitive.name == "convert_element_type"
        and jnp.issubdtype(equation.invars[0].aval.dtype, jnp.floating)
        and not jnp.issubdtype(equation.outvars[0].aval.dtype, jnp.floating)
        for equation in equations(jaxpr.jaxpr)
    )


def weighted(leaf):
    weights = jnp.cos(jnp.arange(leaf.size, dtype=jnp.float32))
    return jnp.vdot(weights, leaf.astype(jnp.float32).ravel())


@ft.partial(eqx.filter_jit, compiler_options=AS_USERS)
def with_gradients(modules, xs):
    """The outputs of every module and the gradients of its parameters, both ways."""
    parameters, rest = partition_trainable(modules)
    carry = modules.initialize_state(jr.split(jr.key(1), BATCH))

    def number(parameters, way):
        result = way(eqx.combine(parameters, rest), carry, xs, IS_FIRST)
        return sum(map(weighted, jtu.tree_leaves(result.output))), result.output

    found = {name: [] for name in modules.components}
    for way in (unroll, unroll_by_step):
        gradients, output = eqx.filter_grad(number, has_aux=True)(parameters, way)
        for name, parts in found.items():
            parts.append((output[name], gradients.components[name]))
    return found


def difference(one, other):
    """The largest, or nothing comparable where dtypes differ."""
    pairs = list(zip(jtu.tree_leaves(one), jtu.tree_leaves(other), strict=True))
    if any(a.dtype != b.dtype for a, b in pairs):
        return "other dtypes"
    return max(float(jnp.max(jnp.abs(a - b))) for a, b in pairs)


def main(memories):
    """Prints what every module does to whole numbers, and how the memories named in the
    arguments differ from what they do to the same numbers as `float32`.
    """
    found = {"cut off": {}, "differences": {}}
    for name, build in MODULES.items():
        module, x = eqx.filter_eval_shape(build, jr.key(0))
        x = jax.eval_shape(lambda x: whole(first_rows(x), "uint8"), x)
        found["cut off"][name] = cut_off(module, x)
    modules, xs = bank(memories, key=jr.key(0))
    for dtype in DTYPES:
        wholes = over_time(whole(xs, dtype))
        floats = jtu.tree_map(lambda leaf: leaf.astype(jnp.float32), wholes)
        these, those = with_gradients(modules, wholes), with_gradients(modules, floats)
        for name in memories:
            differences = found["differences"].setdefault(name, {})
            differences[dtype] = difference(these[name], those[name])
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1:])
