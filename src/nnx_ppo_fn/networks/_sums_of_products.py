"""Finds products with constant matrices that are added up: they can be one product.

`a @ A + b @ B` is the product of `a` and `b` side by side with `A` above `B`. A loop
over time has nothing but small products, one after the other, and a longer one is
faster than two: a CPU may give it several cores.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, final, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax.extend.core import Literal
from jaxtyping import Array

from ._equations import evaluated, is_view, keeps_order
from ._taps import is_tapped


@final
class SumOfProducts(NamedTuple):
    """Products whose results are added up sooner or later.

    - `equations`: of the products, in order.
    - `weight`: their constants, one above the other.
    """

    equations: Sequence[Any]
    weight: Array

    def result(self, operands: Sequence[Array]) -> Array:
        """The sum, which may stand in the last product's place, and zeros elsewhere.

        **Arguments:**

        - `operands`: what the constants are multiplied by.
        """
        joined = [jnp.concatenate(operands, axis=1), self.weight]
        return evaluated(self.equations[-1], joined)[0]


def sums_of_products(
    equations: Sequence[Any],
    results: Collection[Any],
    constants: Mapping[Any, Array],
    names: Callable[[Iterable[Any]], list[Any]],
    origin: Callable[[Any], tuple[Any, Any]],
) -> list[SumOfProducts]:
    """All of two products at least.

    **Arguments:**

    - `equations`: of a traced function.
    - `results`: its variables that are read from outside.
    - `constants`: by variable.
    - `names`: of variables with the same value, the same one.
    - `origin`: what a value is a view of, and by which operations.
    """
    paths = _Paths(equations, results, names, origin)
    found: dict[Any, list[Any]] = {}
    for equation in equations:
        if not _is_product(equation, constants):
            continue
        (product,), kinds = equation.outvars, [x.aval.dtype for x in equation.invars]
        end, masks = paths.onwards(product)
        if end is not product:
            params = sorted(equation.params.items(), key=lambda entry: entry[0])
            key = (end, masks, product.aval.shape, *kinds, *params)
            found.setdefault(key, []).append(equation)
    return [_sum_of(group, constants) for group in found.values() if len(group) > 1]


class _Paths:
    """Where values go that are used in one place alone."""

    def __init__(
        self,
        equations: Sequence[Any],
        results: Collection[Any],
        names: Callable[[Iterable[Any]], list[Any]],
        origin: Callable[[Any], tuple[Any, Any]],
    ):
        self._names = names
        self._origin = origin
        self._results = results
        self._users: dict[Any, list[Any]] = {}
        for equation in equations:
            for atom in names(equation.invars):
                if not isinstance(atom, Literal):
                    self._users.setdefault(atom, []).append(equation)

    def onwards(self, variable: Any) -> tuple[Any, tuple[Any, ...]]:
        """Follows a value through sums, views, and masks that put 0 in its place.

        **Returns:**

        The last value on the way, which is a sum of this one, masked, and of others;
        and the masks. Two values with the same end and the same masks are added up.
        """
        masks: list[Any] = []
        while variable not in self._results and len(self._users.get(variable, ())) == 1:
            (user,) = self._users[variable]
            operands = self._names(user.invars)
            position = operands.index(variable)
            if user.primitive.name == "select_n":
                mask, *cases = operands
                others = [case for case in cases if case is not variable]
                # The same for all rows is a literal, which cannot be told from others.
                is_mask = position > 0 and not isinstance(mask, Literal)
                if not is_mask or not all(map(self._is_zero, others)):
                    break
                masks.append((mask, position))
            elif not _passes_on(user, position):
                break
            (variable,) = user.outvars
        return variable, tuple(masks)

    def _is_zero(self, atom: Any) -> bool:
        base, _ = self._origin(atom)
        return isinstance(base, Literal) and not np.any(base.val)


def _passes_on(equation: Any, position: int) -> bool:
    """Whether the result is an operand as it is, or that and something else."""
    if is_tapped(equation):
        return position == 0
    is_one = equation.primitive.name in ("add", "add_any") or is_view(equation)
    return is_one and keeps_order(equation, equation.invars[position])


def _is_product(equation: Any, constants: Mapping[Any, Array]) -> bool:
    """Whether it is one of a matrix with a constant one, on the right."""
    if equation.primitive.name != "dot_general":
        return False
    (of_first, _), batch = equation.params["dimension_numbers"]
    ranks = [len(operand.aval.shape) for operand in equation.invars]
    right = equation.invars[1]
    is_constant = not isinstance(right, Literal) and right in constants
    return (
        ranks == [2, 2] and tuple(of_first) == (1,) and not any(batch) and is_constant
    )


def _sum_of(products: Sequence[Any], constants: Mapping[Any, Array]) -> SumOfProducts:
    (_, (axis,)), _ = products[0].params["dimension_numbers"]
    weights = [constants[equation.invars[1]] for equation in products]
    return SumOfProducts(products, jnp.concatenate(weights, axis))
