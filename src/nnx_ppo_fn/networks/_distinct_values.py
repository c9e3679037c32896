"""Evaluates a traced function so that every value is computed once."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, final, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import Literal
from jaxtyping import Array

from ._equations import evaluated, read


_VIEWS = ("broadcast_in_dim", "reshape", "squeeze")
"""Operations that cost nothing to repeat where their result is read."""


@final
class _Joined(NamedTuple):
    """Products of one matrix with several constant ones, as a single product.

    - `equations`: of the products.
    - `axis`: of the constants, along which they stand beside each other.
    """

    equations: list[Any]
    axis: int

    def weight(self, constants: Mapping[Any, Any]) -> Array:
        """All constants in one."""
        parts = [constants[equation.invars[1]] for equation in self.equations]
        return jnp.concatenate(parts, self.axis)

    def results(self, matrix: Array, weight: Array) -> dict[Any, Array]:
        """The result of each of the products, by variable."""
        (joined,) = evaluated(self.equations[0], [matrix, weight])
        variables = [equation.outvars[0] for equation in self.equations]
        sizes = [variable.aval.shape[1] for variable in variables]
        return dict(zip(variables, jax.lax.split(joined, sizes, axis=1), strict=True))


@final
class DistinctValues:
    """The distinct values of a traced function.

    Products of one matrix with several constants become one, since a wide product
    takes less time than narrow ones.
    """

    def __init__(self, traced: Any):
        """**Arguments:**

        - `traced`: the function's closed jaxpr. What it closes over are the constants.
        """
        jaxpr = traced.jaxpr
        self._inputs: list[Any] = jaxpr.invars
        self.constants: dict[Any, Any] = dict(
            zip(jaxpr.constvars, traced.consts, strict=True)
        )
        self._equations: list[Any] = []
        self._same: dict[Any, Any] = {}
        self._made_by: dict[Any, Any] = {}
        seen: dict[Any, list[Any]] = {}
        for equation in jaxpr.eqns:
            key = self._key(equation, equation.invars)
            twins = seen.get(key)
            if twins is None:
                seen[key] = equation.outvars
                self._equations.append(equation)
                self._made_by.update(dict.fromkeys(equation.outvars, equation))
            else:
                self._same.update(zip(equation.outvars, twins, strict=True))
        self._joined: dict[Any, tuple[_Joined, Array]] = {}
        for joined in self._joined_products():
            first = joined.equations[0].outvars[0]
            self._joined[first] = joined, joined.weight(self.constants)

    def _key(self, equation: Any, operands: Sequence[Any]) -> Any:
        """Equal for equations that do the same; of what prints, each one counts.

        **Arguments:**

        - `equation`: of the function.
        - `operands`: those that count.
        """
        if equation.effects:
            return object()
        key = (
            equation.primitive,
            tuple(map(key_of, self.names(operands))),
            tuple(sorted(equation.params.items(), key=lambda entry: entry[0])),
            # Which bits a key stands for is a matter of settings.
            repr(equation.ctx),
        )
        try:
            hash(key)
        except TypeError:
            return object()
        return key

    def _joined_products(self) -> list[_Joined]:
        """All that there are, each of two products at least."""
        found: dict[Any, _Joined] = {}
        for equation in self._equations:
            axis = _free_axis(equation)
            if axis is not None and equation.invars[1] in self.constants:
                matrix, constant = equation.invars
                key = (self._key(equation, [matrix]), constant.aval.dtype)
                found.setdefault(key, _Joined([], axis)).equations.append(equation)
        return [joined for joined in found.values() if len(joined.equations) > 1]

    def names(self, atoms: Iterable[Any]) -> list[Any]:
        """The first variables that have the values of some."""
        return [
            atom if isinstance(atom, Literal) else self._same.get(atom, atom)
            for atom in atoms
        ]

    def origin(self, atom: Any) -> tuple[Any, tuple[Any, ...]]:
        """What a value is a view of, and the operations that make it of that."""
        views: list[Any] = []
        (base,) = self.names([atom])
        while not isinstance(base, Literal) and base in self._made_by:
            equation = self._made_by[base]
            if not _is_view(equation):
                break
            views.append(equation)
            (base,) = self.names(equation.invars)
        return base, tuple(reversed(views))

    def run(self, inputs: Sequence[Any]) -> dict[Any, Any]:
        """All values, by variable, of these inputs of the function."""
        found = {**self.constants, **dict(zip(self._inputs, inputs, strict=True))}
        for equation in self._equations:
            variables = equation.outvars
            if variables and variables[0] in found:
                continue
            operands = read(found, self.names(equation.invars))
            if variables and variables[0] in self._joined:
                joined, weight = self._joined[variables[0]]
                found.update(joined.results(operands[0], weight))
            else:
                results = evaluated(equation, operands)
                found.update(zip(variables, results, strict=True))
        return found


def key_of(atom: Any) -> Any:
    """Equal for one variable, and for literals of the same bits and type."""
    if not isinstance(atom, Literal):
        return atom
    kind: Any = atom.aval
    bits = np.asarray(atom.val, kind.dtype).tobytes()
    return kind.shape, kind.dtype, kind.weak_type, bits


def _free_axis(equation: Any) -> int | None:
    """Along which axis of its second operand a product can be widened, if it can be."""
    if equation.primitive.name != "dot_general":
        return None
    (contracted, of_second), batch = equation.params["dimension_numbers"]
    ranks = [len(operand.aval.shape) for operand in equation.invars]
    if ranks != [2, 2] or tuple(contracted) != (1,) or any(batch):
        return None
    return 1 - of_second[0]


def _is_view(equation: Any) -> bool:
    """Whether the result repeats or arranges the numbers of its one operand."""
    name, operands = equation.primitive.name, equation.invars
    if name == "reduce_sum":
        # Over axes of size 1, as the gradient of a new axis.
        return operands[0].aval.size == equation.outvars[0].aval.size
    return name in _VIEWS and len(operands) == 1
