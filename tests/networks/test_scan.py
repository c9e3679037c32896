"""The scan that leaves weights' gradients for afterwards, against JAX's own."""

import collections
import functools as ft

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import jax.tree_util as jtu
import numpy as np
import pytest
from jax.extend.core import jaxprs_in_params

from nnx_ppo_fn.networks._scan import scan


BATCH, SIZE = 3, 4
KEY = jr.key(9)


def weights(key=0, dtype=jnp.float32):
    keys = jr.split(jr.key(key), 3)
    return {
        "kernel": jr.normal(keys[0], (SIZE, SIZE), dtype) / 2,
        "other": jr.normal(keys[1], (SIZE, SIZE), dtype) / 2,
        "bias": jr.normal(keys[2], (SIZE,), dtype),
    }


def on_the_right(w, h, x):
    return jnp.tanh(h @ w["kernel"] + x)


def transposed(w, h, x):
    return jnp.tanh(h @ w["kernel"].T + x)


def on_the_left(w, h, x):
    return jnp.tanh((w["kernel"] @ h.T).T + x)


def of_each_row(w, h, x):
    return jnp.tanh(jax.vmap(lambda row: w["kernel"] @ row)(h) + x)


def with_a_bias(w, h, x):
    return jnp.tanh(h @ w["kernel"] + w["bias"][None] + x)


def with_a_number_for_each_row(w, h, x):
    rows = jnp.sum(w["other"], axis=1)[:BATCH, None]
    return jnp.tanh(h @ w["kernel"] + rows + jnp.broadcast_to(w["bias"], h.shape) + x)


def with_sums_alone(w, h, x):
    return jnp.tanh(h + w["bias"][None] + x) + jnp.sum(w["kernel"])


def one_kernel_twice(w, h, x):
    return jnp.tanh(jnp.tanh(h @ w["kernel"]) @ w["kernel"] + x @ w["kernel"])


def two_kernels(w, h, x):
    return jax.nn.relu(h @ w["kernel"]) @ w["other"] + x


def a_kernel_and_its_elements(w, h, x):
    return jnp.tanh(h @ w["kernel"] + x * jnp.diagonal(w["kernel"])[None])


def a_computed_kernel(w, h, x):
    return jnp.tanh(h @ jnp.where(w["other"] > 0, jnp.abs(w["kernel"]), 0) + x)


def two_weights_multiplied(w, h, x):
    return jnp.tanh(h @ (w["kernel"] @ w["other"]) + x)


def in_half_precision(w, h, x):
    half = (h.astype(jnp.bfloat16) @ w["kernel"].astype(jnp.bfloat16)).astype(h.dtype)
    return jnp.tanh(half + x)


def in_nested_functions(w, h, x):
    inner = jax.checkpoint(jax.jit(lambda h: h @ w["other"]))
    return jnp.tanh(inner(h) + h @ w["kernel"] + x)


def with_complex_numbers(w, h, x):
    turned = h.astype(jnp.complex64) @ jax.lax.complex(w["kernel"], w["other"])
    return jnp.tanh(turned.real + turned.imag + x)


def with_a_key_of_its_own(w, h, x):
    return jnp.tanh(h @ w["kernel"] + jr.normal(KEY, h.shape) + x)


def with_gates(w, h, x):
    gate = jax.nn.sigmoid(h @ w["kernel"] + x)
    return gate * h + (1 - gate) * jnp.tanh(h @ w["other"])


def without_products(w, h, x):
    return jnp.tanh(h * w["bias"][None] + x)


STEPS = [
    on_the_right,
    transposed,
    on_the_left,
    of_each_row,
    with_a_bias,
    with_a_number_for_each_row,
    with_sums_alone,
    one_kernel_twice,
    two_kernels,
    a_kernel_and_its_elements,
    a_computed_kernel,
    two_weights_multiplied,
    in_half_precision,
    in_nested_functions,
    with_complex_numbers,
    with_a_key_of_its_own,
    with_gates,
    without_products,
]


def loss_by(scanning, step):
    """A loss of all that a scan gives, with more in the carry than numbers."""

    def loss(w, h, xs):
        def advance(carry, inputs):
            h, count, key = carry
            x, is_first = inputs
            h = jnp.where(is_first[:, None], 0, h)
            noise = jr.normal(jr.fold_in(key, count), h.shape)
            h = step(w, h, x + 0.1 * noise)
            return (h, count + 1, key), {"activity": h, "positive": h > 0, "none": None}

        is_first = jr.bernoulli(jr.key(5), 0.2, xs.shape[:2])
        start = (h, jnp.int32(0), jr.key(6))
        (last, count, _), said = scanning(advance, start, (xs, is_first))
        counted = count + jnp.sum(said["positive"])
        return jnp.sum(jnp.sin(last)) + jnp.sum(said["activity"] ** 2), counted

    return loss


def arguments(length):
    keys = jr.split(jr.key(1))
    h = jr.normal(keys[0], (BATCH, SIZE))
    return weights(), h, jr.normal(keys[1], (length, BATCH, SIZE))


def assert_equal(ours, theirs, tolerance=1e-5):
    leaves = zip(jtu.tree_leaves(ours), jtu.tree_leaves(theirs), strict=True)
    for one, other in leaves:
        np.testing.assert_allclose(one, other, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(
    "step, length, unroll",
    [
        *((step, 7, 1) for step in STEPS),
        (with_a_bias, 0, 1),
        (with_a_bias, 1, 1),
        (with_a_bias, 7, 2),
        (one_kernel_twice, 6, 3),
        (with_a_bias, 1, 2),
    ],
)
def test_values_and_gradients_are_those_of_jax(step, length, unroll):
    def all_of(scanning):
        loss = loss_by(scanning, step)
        return jax.jit(jax.value_and_grad(loss, argnums=(0, 1, 2), has_aux=True))

    # The order of sums in half precision is seen in its third digit.
    tolerance = 3e-2 if step is in_half_precision else 1e-5
    given = arguments(length)
    ours = all_of(ft.partial(scan, unroll=unroll))(*given)
    assert_equal(ours, all_of(jax.lax.scan)(*given), tolerance)


def inside_and_outside(primitive, function, *given):
    """How often an operation stands inside of loops, and how often outside."""
    counted = collections.Counter()

    def count(jaxpr, is_inside):
        for equation in jaxpr.eqns:
            counted[is_inside] += equation.primitive.name == primitive
            is_loop = equation.primitive.name == "scan"
            for inner in jaxprs_in_params(equation.params):
                count(getattr(inner, "jaxpr", inner), is_inside or is_loop)

    count(jax.make_jaxpr(function)(*given).jaxpr, False)
    return counted[True], counted[False]


@pytest.mark.parametrize(
    "step, inside, outside",
    [
        (on_the_right, 2, 1),
        (transposed, 2, 1),
        (on_the_left, 2, 1),
        (of_each_row, 2, 1),
        (a_kernel_and_its_elements, 2, 1),
        (a_computed_kernel, 2, 1),
        (in_half_precision, 2, 1),
        (with_complex_numbers, 2, 1),
        (with_a_key_of_its_own, 2, 1),
        # Of the nested product, both gradients are in the loop.
        (in_nested_functions, 5, 1),
        (with_a_bias, 2, 1),
        (two_kernels, 4, 2),
        # In one place more than twice, of which two are one product: they are added up.
        # Two of three gradients of operands are the same.
        (one_kernel_twice, 4, 3),
        # The two weights are multiplied once, and have a gradient each.
        (two_weights_multiplied, 2, 4),
    ],
)
def test_no_gradient_of_a_weight_is_in_a_loop(step, inside, outside):
    loss = loss_by(scan, step)
    given = arguments(5)
    gradient = jax.grad(loss, argnums=(0, 1), has_aux=True)
    assert inside_and_outside("dot_general", gradient, *given) == (inside, outside)


@pytest.mark.parametrize("step", [with_a_bias, with_a_number_for_each_row])
def test_no_gradient_of_a_bias_is_summed_in_a_loop(step):
    gradient = jax.grad(loss_by(scan, step), has_aux=True)
    inside, outside = inside_and_outside("reduce_sum", gradient, *arguments(5))
    assert inside == 0 < outside


def kept_arrays(scanning, activation):
    """How many arrays of all steps the loop forward in time leaves behind."""

    def loss(w, h, xs):
        def step(h, x):
            return activation(h @ w["kernel"] + x), None

        return jnp.sum(scanning(step, h, xs)[0])

    jaxpr = jax.make_jaxpr(jax.grad(loss))(*arguments(5)).jaxpr
    loops = [one for one in jaxpr.eqns if one.primitive.name == "scan"]
    shapes = [variable.aval.shape for variable in loops[0].outvars]
    return shapes.count((5, BATCH, SIZE))


def a_gate(x):
    return jax.nn.sigmoid(x) * x


@pytest.mark.parametrize("activation, kept", [(jnp.tanh, 1), (a_gate, 2)])
def test_the_gradient_of_an_activation_keeps_its_result(activation, kept):
    """A gate keeps what it lets through as well."""

    def of_activation(scanning):
        return kept_arrays(scanning, activation) - kept_arrays(scanning, lambda x: x)

    assert of_activation(scan) == kept < of_activation(jax.lax.scan)


@pytest.mark.parametrize("step", [with_a_bias, one_kernel_twice])
@pytest.mark.parametrize("outer", [jax.jacrev, jax.jacfwd])
def test_gradients_of_gradients_are_those_of_jax(step, outer):
    def bent(scanning):
        def loss(*given):
            return loss_by(scanning, step)(*given)[0]

        gradient = jax.jacrev(loss, argnums=(0, 1, 2))
        return jax.jit(outer(gradient, argnums=(0, 1, 2)))

    given = arguments(4)
    assert_equal(bent(scan)(*given), bent(jax.lax.scan)(*given), 1e-4)


def test_it_goes_under_vmap_and_inside_of_loops():
    def of_many(scanning):
        loss = loss_by(scanning, with_a_bias)

        def in_turn(w, h, xs):
            return jax.lax.map(lambda one: loss(w, h, one)[0], jnp.stack([xs, -xs]))

        def total(w, h, xs):
            w = jtu.tree_map(lambda leaf: jnp.stack([leaf, -leaf]), w)
            each = jax.vmap(in_turn, in_axes=(0, None, None))(w, h, xs)
            return jnp.sum(jnp.sin(each))

        return jax.jit(jax.value_and_grad(total, argnums=(0, 1, 2)))

    given = arguments(4)
    assert_equal(of_many(scan)(*given), of_many(jax.lax.scan)(*given))


def test_a_weakly_typed_carry_and_constants_of_numpy():
    kernel = np.eye(SIZE, dtype=np.float32)

    def run(scanning):
        def step(h, x):
            return jnp.tanh(h @ kernel + x), None

        return jax.grad(
            lambda xs: jnp.sum(scanning(step, jnp.full((BATCH, SIZE), 0.5), xs)[0])
        )

    xs = arguments(3)[2]
    assert_equal(run(scan)(xs), run(jax.lax.scan)(xs))


def test_numbers_of_python_in_the_carry_and_in_the_output():
    w, h, xs = arguments(4)

    def gradient(scanning):
        def step(carry, x):
            h, count = carry
            return (jnp.tanh(h @ w["kernel"] + x), 0.5), (h * count, 3.0)

        def loss(h):
            (last, count), (said, three) = scanning(step, (h, 1.0), xs)
            return jnp.sum(last) * count + jnp.sum(said) + jnp.sum(three)

        return jax.value_and_grad(loss)(h)

    assert_equal(gradient(scan), gradient(jax.lax.scan))


def of_whole_numbers(w, carry, x):
    h, count = carry
    ring = jnp.roll(jnp.eye(SIZE, dtype=jnp.int32), 1, axis=0)
    return jnp.tanh(h @ w["kernel"] + count + x), count @ (ring + jnp.int32(0)) % 5


def of_no_width(w, carry, x):
    h, count = carry
    return jnp.tanh(h @ w["kernel"] + x[:, :0] @ w["other"][:0] + x), count


@pytest.mark.parametrize("step", [of_whole_numbers, of_no_width])
def test_products_that_have_no_gradient(step):
    w, h, xs = arguments(4)
    count = jnp.arange(BATCH * SIZE).reshape(BATCH, SIZE)

    def gradient(scanning):
        def loss(w, xs):
            def advance(carry, x):
                return step(w, carry, x), None

            with jax.numpy_dtype_promotion("standard"):
                (last, _), _ = scanning(advance, (h, count), xs)
            return jnp.sum(last)

        return jax.grad(loss, argnums=(0, 1))(w, xs)

    assert_equal(gradient(scan), gradient(jax.lax.scan))


def test_steps_that_talk_to_other_rows():
    w, h, xs = arguments(4)

    def gradient(scanning):
        def of_one(w, h):
            def advance(h, x):
                return jnp.tanh(jax.lax.pmean(h @ w["kernel"], "rows") + x), None

            return jnp.sum(scanning(advance, h, xs)[0])

        def total(w):
            rows = jnp.stack([h, -h])
            return jnp.sum(jax.vmap(of_one, (None, 0), axis_name="rows")(w, rows))

        return jax.grad(total)(w)

    assert_equal(gradient(scan), gradient(jax.lax.scan))


def test_a_carry_that_changes_its_type_is_for_jax():
    _, h, xs = arguments(4)
    kernel = weights()["kernel"]

    def step(carry, x):
        h, count = carry
        return (jnp.tanh(h @ kernel + x), count / 2 + x[0, 0]), None

    last, count = scan(step, (h, 1), xs)[0]
    last_of_jax, count_of_jax = jax.lax.scan(step, (h, 1), xs)[0]
    assert_equal((last, count), (last_of_jax, count_of_jax))
    with pytest.raises(TypeError, match="must be a pair"):
        scan(lambda h, x: h @ kernel, h, xs)


def test_effects_stay_in_the_loop(capfd):
    w, h, xs = arguments(3)

    def step(h, x):
        jax.debug.print("weights {}", w["bias"][0])
        return jnp.tanh(h @ w["kernel"] + x), None

    scan(step, h, xs)
    jax.effects_barrier()
    assert capfd.readouterr().out.count("weights") == 3


def test_forward_mode_is_refused():
    loss = loss_by(scan, on_the_right)
    given = arguments(3)
    with pytest.raises(TypeError, match="forward-mode .* custom_vjp"):
        jax.jvp(lambda h: loss(given[0], h, given[2])[0], given[1:2], given[1:2])


def test_gradients_of_weights_that_train_alone():
    w, h, xs = arguments(4)
    trained, fixed = eqx.partition(w, {"kernel": True, "other": False, "bias": False})

    def gradient(scanning):
        loss = loss_by(scanning, with_a_bias)
        return jax.grad(lambda part: loss(eqx.combine(part, fixed), h, xs)[0])(trained)

    assert_equal(gradient(scan), gradient(jax.lax.scan))
