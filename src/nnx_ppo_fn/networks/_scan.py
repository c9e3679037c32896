"""A scan over time that leaves the gradients of weights for afterwards.

A tap beside the result of a product or of a sum has the gradient that the weight's own
is made of.
"""

import dataclasses
import functools as ft
from collections import Counter
from collections.abc import Callable, Mapping, Sequence, Set
from typing import Any, cast, final, NamedTuple, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.tree_util as jtu
from jax.extend.core import Literal
from jaxtyping import Array, Inexact

from .._tree import merge_time, tree_map
from ._equations import evaluated_for_gradients, read, variables
from ._lean_scan import lean_scan, one_step
from ._taps import with_tap


Carry = TypeVar("Carry")


def scan(
    step: Callable[[Carry, Any], tuple[Carry, Any]],
    init: Carry,
    xs: Any,
    *,
    unroll: int = 1,
) -> tuple[Carry, Any]:
    """`jax.lax.scan`, but for how weights get their gradients.

    A matrix with which every step multiplies gets a term of its gradient from every
    step. `jax.lax.scan` adds them up in the loop backwards in time: a small product in
    each step, whose sum devices with other environments have to be told each time. Here
    the loop keeps what it has multiplied, and the gradient is one product after it. A
    bias that every step adds gets its gradient by one sum, after the loop as well. What
    depends on weights alone is computed before the loop, and its gradient after it.

    JAX refuses forward-mode differentiation, as of all `jax.custom_vjp`.

    **Arguments:**

    - `step`: from a carry and a step of `xs` to the next carry and an output. It may
      close over weights; those that are multiplied in nested functions of JAX, such as
      a `jax.jit`, get their gradients in the loop.
    - `init`: the carry before the first step.
    - `xs`: leaves `[T, ...]`, at least one.
    - `unroll`: how many steps a round of the compiled loop takes.

    **Returns:**

    The carry after the last step, and the outputs, leaves `[T, ...]`.
    """
    traced, results = jax.make_jaxpr(step, return_shape=True)(
        init, tree_map(one_step, xs)
    )
    if _is_plain(traced, init, results):
        body, constants = _hoisted(traced, jtu.tree_structure(results), unroll)
        if body.uses:
            return _scan(body, constants, init, xs)
    return jax.lax.scan(step, init, xs, unroll=unroll)


def _is_plain(traced: Any, init: Any, results: Any) -> bool:
    """Whether a step can be run as it was traced, equation by equation.

    Not where the carry changes its type, about which `jax.lax.scan` knows what to do or
    to say, where the step prints or talks to other rows, and where types tell on which
    devices arrays are.
    """

    def is_placed(variable: Any) -> bool:
        kind = variable.aval
        mesh = getattr(getattr(kind, "sharding", None), "mesh", None)
        # `vma` was its name before JAX 0.10.
        varying = getattr(getattr(kind, "mat", kind), "varying", ())
        varying = varying or getattr(kind, "vma", ())
        return bool(varying or getattr(mesh, "explicit_axes", ()))

    given = (*traced.jaxpr.constvars, *traced.jaxpr.invars)
    if traced.effects or any(map(is_placed, given)):
        return False
    if not isinstance(results, tuple) or len(cast(tuple[Any, ...], results)) != 2:
        return False
    structure = jtu.tree_structure(init)
    if jtu.tree_structure(results[0]) != structure:
        return False
    before, after = (
        [(kind.shape, kind.dtype) for kind in kinds[: structure.num_leaves]]
        for kinds in (traced.in_avals, traced.out_avals)
    )
    return before == after


@final
class _Use(NamedTuple):
    """A matrix product with a constant of the loop, or a sum.

    - `constant`: its number among the constants.
    - `side`: which operand it is, 0 or 1.
    """

    constant: int
    side: int


@final
@dataclasses.dataclass(frozen=True, eq=False)
class _Body:
    """A step as JAX has traced it, without what depends on constants alone.

    - `equations`: of the jaxpr.
    - `constants`, `inputs`, `results`: its variables; inputs are those of a carry and a
      step of `xs`, results those of the next carry and an output.
    - `structure`: of the results.
    - `uses`: of constants whose gradients can wait, by the number of the equation.
    - `used_otherwise`: numbers of constants that have other uses as well.
    - `unroll`: how many steps a round of the compiled loop takes.
    """

    equations: Sequence[Any]
    constants: Sequence[Any]
    inputs: Sequence[Any]
    results: Sequence[Any]
    structure: Any
    uses: Mapping[int, _Use]
    used_otherwise: Set[int]
    unroll: int

    def step(
        self, constants: list[Array], carry: Any, x: Any, tapped: "_Tapped"
    ) -> tuple[Any, Any, dict[int, Array]]:
        """One step.

        **Returns:**

        The next carry, the output, and the other operands of the tapped products.
        """
        values = dict(zip(self.constants, constants, strict=True))
        given = jtu.tree_leaves((carry, x))
        values.update(zip(self.inputs, given, strict=True))
        others: dict[int, Array] = {}
        for number, equation in enumerate(self.equations):
            operands = read(values, equation.invars)
            if number in tapped.taps:
                side = self.uses[number].side
                if equation.primitive.name == "dot_general":
                    others[number] = operands[1 - side]
                operands[side] = tapped.weights[number]
            results = evaluated_for_gradients(equation, operands)
            if number in tapped.taps:
                results = [with_tap(results[0], tapped.taps[number])]
            values.update(zip(equation.outvars, results, strict=True))
        arrays = map(jnp.asarray, read(values, self.results))
        next_carry, output = jtu.tree_unflatten(self.structure, arrays)
        return next_carry, output, others

    def differentiated(
        self, constants: list[Array], carry: Any, x: Any
    ) -> tuple[Any, Any, dict[int, Array]]:
        """One step and its derivative.

        **Returns:**

        The next carry and the output; a function from their cotangents to those of
        `loose` constants, the carry, and `x`, and to those of the taps; and the other
        operands of the tapped products.
        """
        weights = {number: constants[use.constant] for number, use in self.uses.items()}
        numbers, fixed = eqx.partition((carry, x), eqx.is_inexact_array)

        def run(numbers: Any, taps: Any) -> tuple[Any, Any]:
            loose, *given = numbers
            carry, x = eqx.combine(tuple(given), fixed)
            complete = eqx.combine(loose, constants)
            tapped = _Tapped(weights, taps)
            next_carry, output, others = self.step(complete, carry, x, tapped)
            results, rest = eqx.partition((next_carry, output), eqx.is_inexact_array)
            return results, (rest, others)

        results, pullback, (rest, others) = jax.vjp(
            run, (self.loose(constants), *numbers), self.taps(), has_aux=True
        )
        return eqx.combine(results, rest), pullback, others

    def loose(self, constants: list[Array]) -> list[Array | None]:
        """Constants that get a part of their gradient in the loop, and `None`."""
        return [
            constant
            if number in self.used_otherwise and eqx.is_inexact_array(constant)
            else None
            for number, constant in enumerate(constants)
        ]

    def taps(self) -> dict[int, Inexact[Array, "..."]]:
        """A tap for each of the uses in a step."""
        kinds = {number: self.equations[number].outvars[0].aval for number in self.uses}
        return {key: jnp.zeros(kind.shape, kind.dtype) for key, kind in kinds.items()}

    def gradient(
        self, number: int, others: Mapping[int, Array], cotangent: Array
    ) -> Array:
        """Of the constant of a product or a sum, out of all steps at once.

        **Arguments:**

        - `number`: the equation's.
        - `others`: the other operands of products, in all steps.
        - `cotangent`: of the results.
        """
        equation, side = self.equations[number], self.uses[number].side
        if number not in others:
            return _sum_to(equation.invars[side].aval.shape, cotangent)
        contracted, _ = equation.params["dimension_numbers"]
        inputs = jnp.moveaxis(others[number], 1 + contracted[1 - side][0], -1)
        # Of the axes of a result, the left operand's is the first.
        outputs = jnp.moveaxis(cotangent, 1 + side, -1)
        gradient = jax.lax.dot_general(
            merge_time(inputs),
            merge_time(outputs),
            (((0,), (0,)), ((), ())),
            precision=equation.params["precision"],
            preferred_element_type=equation.params["preferred_element_type"],
        )
        constant = equation.invars[side].aval
        is_transposed = contracted[side][0] == 1
        return (gradient.T if is_transposed else gradient).astype(constant.dtype)


@final
class _Tapped(NamedTuple):
    """Equations whose constants get no gradient in the loop, by their number.

    - `weights`: the constants once more, from outside of the function that is
      differentiated. `stop_gradient` would stop the gradient of a gradient as well.
    - `taps`: what gets the gradients of the products' results instead.
    """

    weights: Mapping[int, Array]
    taps: Mapping[int, Array]


def _hoisted(traced: Any, structure: Any, unroll: int) -> tuple[_Body, list[Array]]:
    """The step, and the constants that it needs, computed as far as can be.

    **Arguments:**

    - `traced`: a closed jaxpr.
    - `structure`: of its results.
    - `unroll`: as for `scan`.
    """
    jaxpr = traced.jaxpr
    constants = map(jnp.asarray, traced.consts)
    known: dict[Any, Array] = dict(zip(jaxpr.constvars, constants, strict=True))
    equations: list[Any] = []
    for equation in jaxpr.eqns:
        read_here = variables(equation.invars)
        if read_here and known.keys() >= set(read_here):
            results = evaluated_for_gradients(equation, read(known, equation.invars))
            known.update(zip(equation.outvars, results, strict=True))
        else:
            equations.append(equation)
    atoms = [atom for equation in equations for atom in equation.invars]
    needed = Counter(variables([*atoms, *jaxpr.outvars]))
    constants = [variable for variable in known if variable in needed]
    uses = _uses_of(constants, equations)
    waiting = Counter(constants[use.constant] for use in uses.values())
    body = _Body(
        equations=equations,
        constants=constants,
        inputs=jaxpr.invars,
        results=jaxpr.outvars,
        structure=structure,
        uses=uses,
        used_otherwise={
            number
            for number, variable in enumerate(constants)
            if needed[variable] > waiting[variable]
        },
        unroll=unroll,
    )
    return body, [known[variable] for variable in constants]


def _uses_of(constants: Sequence[Any], equations: Sequence[Any]) -> dict[int, _Use]:
    """Products and sums of a constant and what is none, by number of the equation."""
    found: dict[int, _Use] = {}
    for number, equation in enumerate(equations):
        if not (_is_matrix_product(equation) or _is_sum(equation)):
            continue
        for side, atom in enumerate(equation.invars):
            if not isinstance(atom, Literal) and atom in constants:
                found[number] = _Use(constants.index(atom), side)
    return found


def _is_matrix_product(equation: Any) -> bool:
    if equation.primitive.name != "dot_general":
        return False
    kinds = [atom.aval for atom in equation.invars]
    (contracted, _), (batch, _) = equation.params["dimension_numbers"]
    is_of_matrices = all(len(kind.shape) == 2 for kind in kinds) and not batch
    is_of_numbers = all(jnp.issubdtype(kind.dtype, jnp.inexact) for kind in kinds)
    return is_of_matrices and is_of_numbers and len(contracted) == 1


def _is_sum(equation: Any) -> bool:
    kind = equation.outvars[0].aval
    return equation.primitive.name == "add" and jnp.issubdtype(kind.dtype, jnp.inexact)


def _sum_to(shape: tuple[int, ...], cotangent: Inexact[Array, "T ..."]) -> Array:
    """The gradient of an operand of a sum that was the same all along.

    **Arguments:**

    - `shape`: the operand's: that of the results, but for axes of size 1, or no axes.
    - `cotangent`: of the results.
    """
    sizes = shape or (1,) * (cotangent.ndim - 1)
    repeated = [axis for axis, size in enumerate(sizes, start=1) if size == 1]
    return jnp.sum(cotangent, axis=(0, *repeated)).reshape(shape)


@ft.partial(jax.custom_vjp, nondiff_argnums=(0,))
def _scan(body: _Body, constants: list[Array], init: Any, xs: Any) -> tuple[Any, Any]:
    def step(carry: Any, x: Any) -> tuple[Any, Any]:
        next_carry, output, _ = body.step(constants, carry, x, _Tapped({}, {}))
        return next_carry, (output,)

    last, outputs = lean_scan(step, init, xs, unroll=body.unroll)
    return last, outputs.stacked(0)


def _forward(body: _Body, constants: list[Array], init: Any, xs: Any) -> Any:
    """The results, and what the gradient of each step is made of."""

    def step(carry: Any, x: Any) -> tuple[Any, Any]:
        results, pullback, others = body.differentiated(constants, carry, x)
        next_carry, output = results
        return next_carry, (output, pullback, others)

    last, kept = lean_scan(step, init, xs, unroll=body.unroll)
    return (last, kept.stacked(0)), (kept, constants)


def _backward(body: _Body, residuals: Any, cotangents: Any) -> tuple[Any, Any, Any]:
    kept, constants = residuals
    of_last, of_output = tree_map(
        lambda leaf: None if leaf.dtype == jax.dtypes.float0 else leaf, cotangents
    )
    loose = body.loose(constants)

    def step(carry: Any, inputs: Any) -> tuple[Any, Any]:
        of_next, sums = carry
        of_step, of_output = inputs
        _, pullback, _ = kept.at_step(of_step)
        (of_loose, of_carry, of_x), taps = pullback((of_next, of_output))
        sums = tree_map(jnp.add, sums, of_loose)
        return (of_carry, sums), (of_x, taps)

    (of_init, sums), outputs = lean_scan(
        step,
        (of_last, tree_map(jnp.zeros_like, loose)),
        (kept.of_steps, of_output),
        reverse=True,
        unroll=body.unroll,
    )
    of_xs, taps, others = outputs.stacked(0), outputs.stacked(1), kept.stacked(2)
    gradients = list(sums)
    for number, use in body.uses.items():
        gradient = body.gradient(number, others, taps[number])
        before = gradients[use.constant]
        gradients[use.constant] = gradient if before is None else before + gradient
    return gradients, of_init, of_xs


_scan.defvjp(_forward, _backward)
