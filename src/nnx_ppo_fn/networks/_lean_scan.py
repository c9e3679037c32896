"""A scan that stores every value once.

`jax.lax.scan` stores all outputs of a step, even if some are equal, an input, or the
same in every step. A compiler does not see that two arrays that are filled in a loop
are the same one.
"""

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, final, NamedTuple

import jax
import jax.numpy as jnp
import jax.tree_util as jtu
import numpy as np
from jax.extend.core import Literal
from jaxtyping import Array

from .._tree import tree_map
from ._equations import evaluated, is_view, read, variables
from ._sums_of_products import sums_of_products


@final
class _Origin(NamedTuple):
    """Where an output comes from.

    - `number`: among the arrays of all steps, or among those of none.
    - `is_of_a_step`: which of the two.
    - `views`: operations that make the output of it.
    """

    number: int
    is_of_a_step: bool
    views: tuple[Any, ...]

    def seen(self, array: Any) -> Any:
        """The output of one step."""
        for equation in self.views:
            (array,) = evaluated(equation, [array])
        return array


@final
@jtu.register_static
@dataclasses.dataclass(frozen=True, eq=False)
class _Layout:
    """Which output comes from where.

    - `origins`: of the outputs.
    - `structure`: of the tree that they make up.
    - `length`: of the scan, `T`.
    """

    origins: tuple[_Origin, ...]
    structure: Any
    length: int


@final
class Outputs(NamedTuple):
    """The outputs of all steps.

    - `of_steps`: arrays `[T, ...]`, each of them different.
    - `of_none`: what is the same in every step, without an axis of time.
    - `layout`: how they make up the outputs.
    """

    of_steps: list[Array]
    of_none: list[Any]
    layout: _Layout

    def stacked(self, part: int) -> Any:
        """One of the outputs as `jax.lax.scan` returns it, leaves `[T, ...]`.

        **Arguments:**

        - `part`: which, of the tuple of outputs.
        """

        def whole(origin: _Origin) -> Array:
            if origin.is_of_a_step:
                return jax.vmap(origin.seen)(self.of_steps[origin.number])
            array = origin.seen(self.of_none[origin.number])
            return jnp.broadcast_to(array, (self.layout.length, *array.shape))

        origins = jtu.tree_unflatten(self.layout.structure, self.layout.origins)
        return jtu.tree_map(
            whole, origins[part], is_leaf=lambda leaf: isinstance(leaf, _Origin)
        )

    def at_step(self, of_step: Sequence[Any]) -> Any:
        """The outputs of one step.

        **Arguments:**

        - `of_step`: a step of each of `of_steps`.
        """

        def seen(origin: _Origin) -> Any:
            arrays = of_step if origin.is_of_a_step else self.of_none
            return origin.seen(arrays[origin.number])

        leaves = list(map(seen, self.layout.origins))
        return jtu.tree_unflatten(self.layout.structure, leaves)


def lean_scan(
    step: Callable[[Any, Any], tuple[Any, Any]],
    init: Any,
    xs: Any,
    *,
    reverse: bool = False,
    unroll: int = 1,
) -> tuple[Any, Outputs]:
    """`jax.lax.scan`, but for how outputs are stored.

    **Arguments:**

    - `step`: from a carry and a step of `xs` to the next carry, of the same type, and a
      tuple of outputs. It is traced once more.
    - `init`, `xs`, `reverse`, `unroll`: as for `jax.lax.scan`; `xs` with at least one
      leaf.

    **Returns:**

    The carry after the last step, and the outputs.
    """
    traced, shapes = jax.make_jaxpr(step, return_shape=True)(
        init, tree_map(one_step, xs)
    )
    jaxpr, given, values = traced.jaxpr, jtu.tree_leaves(xs), _Values(traced)
    size = jtu.tree_structure(init).num_leaves
    outputs = [values.origin(atom) for atom in jaxpr.outvars[size:]]
    bases = {_key_of(base): base for base, _ in outputs}

    literals = {
        key: base.val for key, base in bases.items() if isinstance(base, Literal)
    }
    of_none = values.constants | literals
    of_none = {key: jnp.asarray(one) for key, one in of_none.items()}
    of_steps = dict(zip(jaxpr.invars[size:], given, strict=True))
    stored = [key for key in bases if key not in of_none and key not in of_steps]

    def lean(carry: list[Any], x: list[Any]) -> tuple[list[Any], list[Any]]:
        found = values.run([*carry, *x])
        next_carry = read(found, values.names(jaxpr.outvars[:size]))
        return next_carry, read(found, stored)

    last, arrays = jax.lax.scan(
        lean, jtu.tree_leaves(init), given, reverse=reverse, unroll=unroll
    )
    of_steps |= zip(stored, arrays, strict=True)
    steps = [key for key in bases if key in of_steps]
    others = [key for key in bases if key in of_none]

    def origin_of(base: Any, views: tuple[Any, ...]) -> _Origin:
        key = _key_of(base)
        keys = steps if key in of_steps else others
        return _Origin(keys.index(key), key in of_steps, views)

    origins = tuple(origin_of(*output) for output in outputs)
    layout = _Layout(origins, jtu.tree_structure(shapes[1]), len(given[0]))
    return jtu.tree_unflatten(jtu.tree_structure(init), last), Outputs(
        [of_steps[key] for key in steps], [of_none[key] for key in others], layout
    )


def one_step(leaf: Array) -> jax.ShapeDtypeStruct:
    """The type of a step of a leaf `[T, ...]`."""
    kind = jax.typeof(leaf)
    return jax.ShapeDtypeStruct(kind.shape[1:], kind.dtype, weak_type=kind.weak_type)


class _Values:
    """The distinct values of a traced function."""

    def __init__(self, traced: Any):
        """**Arguments:**

        - `traced`: a closed jaxpr. What it closes over are the constants.
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
            key = self._key(equation)
            twins = seen.get(key)
            if twins is None:
                seen[key] = equation.outvars
                self._equations.append(equation)
                self._made_by.update(dict.fromkeys(equation.outvars, equation))
            else:
                self._same.update(zip(equation.outvars, twins, strict=True))
        read_outside = set(variables(self.names(jaxpr.outvars)))
        sums = sums_of_products(
            self._equations, read_outside, self.constants, self.names, self.origin
        )
        self._sums = {one.equations[-1].outvars[0]: one for one in sums}
        self._summed_elsewhere = {
            equation.outvars[0] for one in sums for equation in one.equations[:-1]
        }

    def _key(self, equation: Any) -> Any:
        """Equal for equations that do the same; of what prints, each one counts."""
        if equation.effects:
            return object()
        key = (
            equation.primitive,
            tuple(map(_key_of, self.names(equation.invars))),
            tuple(sorted(equation.params.items(), key=lambda entry: entry[0])),
            # Which bits a key stands for is a matter of settings.
            repr(equation.ctx),
        )
        try:
            hash(key)
        except TypeError:
            return object()
        return key

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
            if not is_view(equation):
                break
            views.append(equation)
            (base,) = self.names(equation.invars)
        return base, tuple(reversed(views))

    def run(self, inputs: list[Any]) -> dict[Any, Any]:
        """All values, by variable."""
        found = {**self.constants, **dict(zip(self._inputs, inputs, strict=True))}
        for equation in self._equations:
            results = self._results(equation, found)
            found.update(zip(equation.outvars, results, strict=True))
        return found

    def _results(self, equation: Any, found: Mapping[Any, Any]) -> list[Any]:
        """Of one equation, given all values before it."""
        first: Any = next(iter(equation.outvars), None)
        if first in self._summed_elsewhere:
            return [jnp.zeros(first.aval.shape, first.aval.dtype)]
        if first in self._sums:
            summed = self._sums[first]
            atoms = self.names(product.invars[0] for product in summed.equations)
            return [summed.result(read(found, atoms))]
        return evaluated(equation, read(found, self.names(equation.invars)))


def _key_of(atom: Any) -> Any:
    """Equal for one variable, and for literals of the same bits and type."""
    if not isinstance(atom, Literal):
        return atom
    kind: Any = atom.aval
    bits = np.asarray(atom.val, kind.dtype).tobytes()
    return kind.shape, kind.dtype, kind.weak_type, bits
