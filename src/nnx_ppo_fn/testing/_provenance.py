"""Follows every random key through a jaxpr, without running it.

A key array becomes an array of names (`Name`), one per key. Operations that move keys
move names; `split` and `fold_in` derive new names; everything that turns a key into
numbers is a draw. What the names meet is kept in a `KeyBook`, which refuses the second
draw from a key. Numbers are followed only as far as they are constants, since they may
say which child is derived or which key is picked.
"""

from collections.abc import Iterable, Sequence
from typing import Any, final

import jax.extend.core as jex
import numpy as np
from jax.core import Tracer

from .._tree import is_key
from ._lines import is_of_library, JAX_RANDOM, Line
from ._names import KeyBook, Name
from ._values import (
    apply,
    are_names,
    evaluate,
    Names,
    numbers,
    row,
    Unknown,
    Value,
)


_LONGEST_SCAN = 32


def name_keys(shape: tuple[int, ...], text: str, *, born: bool) -> Names:
    """A new name for every key of an array.

    **Arguments:**

    - `shape`: of the array; its first axis counts environments.
    - `text`: what the keys are, for messages.
    - `born`: whether they belong to the carry.
    """
    names = np.empty(shape, object)
    for index in np.ndindex(shape):
        names[index] = Name(text, born, environment=index[0] if index else None)
    return names


@final
class Walk:
    """Walks through jaxprs and writes what it sees into a book."""

    def __init__(self, book: KeyBook):
        self.book = book
        self._held_by_module: dict[int, Names] = {}
        self._line_of_call: Line | None = None
        self._drawn_by_library: set[tuple[int, Name]] = set()

    def closed(self, jaxpr: Any, inputs: Sequence[Value]) -> list[Value]:
        """The values of the outputs of a `ClosedJaxpr`.

        **Arguments:**

        - `jaxpr`: the `ClosedJaxpr`.
        - `inputs`: names for keys, and `Unknown()` for everything else.
        """
        return self._open(jaxpr.jaxpr, map(self._constant, jaxpr.consts), inputs)

    def _constant(self, value: Any) -> Value:
        if not is_key(value):
            return Unknown() if isinstance(value, Tracer) else value
        if id(value) not in self._held_by_module:
            text = "a key that the module holds or closes over"
            self._held_by_module[id(value)] = name_keys(value.shape, text, born=False)
        return self._held_by_module[id(value)]

    def _open(
        self, jaxpr: Any, constants: Iterable[Value], inputs: Sequence[Value]
    ) -> list[Value]:
        values: dict[Any, Value] = dict(
            zip((*jaxpr.constvars, *jaxpr.invars), (*constants, *inputs), strict=True)
        )

        def read(atom: Any) -> Value:
            return atom.val if isinstance(atom, jex.Literal) else values[atom]

        outer, self._drawn_by_library = self._drawn_by_library, set()
        for equation in jaxpr.eqns:
            operands = [read(atom) for atom in equation.invars]
            results = self._equation(equation, operands)
            values.update(zip(equation.outvars, results, strict=True))
        self._drawn_by_library = outer
        return [read(atom) for atom in jaxpr.outvars]

    def _equation(self, equation: Any, operands: list[Value]) -> Sequence[Value]:
        loop = {"scan": self._scan, "while": self._while, "cond": self._cond}
        primitive = equation.primitive.name
        if primitive in loop:
            if is_of_library(equation) and any(map(are_names, operands)):
                return self._loop_of_library(equation, operands)
            return loop[primitive](equation, operands)
        inner = _inner_jaxpr(equation)
        if inner is not None and _is_distribution(equation, inner, operands):
            return self._draw(equation, operands)
        if inner is not None:
            return self._inline(equation, inner, operands)
        if any(is_key(outvar.aval) for outvar in equation.outvars):
            return self._makes_keys(equation, operands)
        if any(map(are_names, operands)):
            return self._reads_keys(equation, operands)
        return numbers(equation, operands)

    def _inline(self, equation: Any, inner: Any, operands: list[Value]) -> list[Value]:
        # The inside of a `jit` may have been traced for another caller, so it stands
        # in the line of the call.
        outer = self._line_of_call
        if equation.primitive.name in ("jit", "pjit"):
            self._line_of_call = self._line(equation)
        constants = map(self._constant, getattr(inner, "consts", ()))
        results = self._open(getattr(inner, "jaxpr", inner), constants, operands)
        self._line_of_call = outer
        return results

    def _line(self, equation: Any) -> Line:
        return self._line_of_call or Line(equation)

    # Keys become numbers, or other keys.

    def _reads_keys(self, equation: Any, operands: list[Value]) -> list[Value]:
        primitive = equation.primitive.name
        if primitive == "random_unwrap":
            return [Unknown(raw_keys=operands[0])]
        if primitive.startswith("random_"):
            return self._draw(equation, operands)
        return [Unknown() for _ in equation.outvars]

    def _draw(self, equation: Any, operands: list[Value]) -> list[Value]:
        for name in _names_among(operands):
            self.book.draw(name, self._line(equation))
        return [Unknown() for _ in equation.outvars]

    def _loop_of_library(self, equation: Any, operands: list[Value]) -> list[Value]:
        """A loop inside a distribution of `jax.random`, which is part of one draw.

        `binomial` runs two of them on one key and keeps the numbers of one. What one
        call does has one source in the jaxpr.
        """
        for name in _names_among(operands):
            use = (id(equation.source_info), name)
            if use not in self._drawn_by_library:
                self.book.draw(name, self._line(equation))
            self._drawn_by_library.add(use)
        return self._opaque(equation, _names_among(operands))

    def _makes_keys(self, equation: Any, operands: list[Value]) -> list[Value]:
        primitive = equation.primitive.name
        shape: tuple[int, ...] = equation.outvars[0].aval.shape
        if primitive == "random_split":
            return [self._split(equation, operands[0], shape)]
        if primitive == "random_fold_in":
            return [self._fold_in(equation, operands[0], operands[1], shape)]
        if primitive in ("random_seed", "random_wrap"):
            return [self._from_bits(equation, operands[0], shape)]
        if primitive in ("random_clone", "copy", "copy_p", "optimization_barrier"):
            return operands
        if primitive == "select_n":
            return [self._select(operands[0], operands[1:])]
        return self._move(equation, operands)

    def _split(self, equation: Any, keys: Names, shape: tuple[int, ...]) -> Names:
        children: Names = np.empty(shape, object)
        for index in np.ndindex(keys.shape):
            for number, place in enumerate(np.ndindex(shape[keys.ndim :])):
                child = self.book.child(keys[index], number, self._line(equation))
                children[index + place] = child
        return children

    def _fold_in(
        self, equation: Any, keys: Names, data: Value, shape: tuple[int, ...]
    ) -> Names:
        # `fold_in(key, i)` is `split(key)[i]`, so a child is known by its number.
        number = evaluate(data)
        tags: Names = np.empty(shape, object)
        for index in np.ndindex(shape):
            tags[index] = (data, index)
        if number is not None:
            tags[...] = np.asarray(number).astype(np.int64) % 2**32
        parents: Names = np.broadcast_to(keys, shape)
        children = np.empty(shape, object)
        for index in np.ndindex(shape):
            children[index] = self.book.child(
                parents[index], tags[index], self._line(equation)
            )
        return children

    def _from_bits(self, equation: Any, bits: Value, shape: tuple[int, ...]) -> Names:
        raw = bits.raw_keys if isinstance(bits, Unknown) else None
        if raw is not None and raw.shape == shape:
            return raw
        text = f"a key made from a seed or from raw bits ({self._line(equation)})"
        return name_keys(shape, text, born=False)

    def _select(self, which: Value, cases: list[Names]) -> Names:
        choice = evaluate(which)
        if choice is not None:
            which_case = np.asarray(choice).astype(np.int64)
            return np.asarray(np.choose(which_case, cases), object)
        chosen = np.empty(cases[0].shape, object)
        for index in np.ndindex(chosen.shape):
            options: tuple[Any, ...] = tuple(case[index] for case in cases)
            chosen[index] = self.book.one_of(options, (which, index))
        return chosen

    def _move(self, equation: Any, operands: list[Value]) -> list[Value]:
        """Lets the operation act on numbers that stand for the names."""
        catalogue = list(
            dict.fromkeys(name for o in operands if are_names(o) for name in o.flat)
        )
        number = {name: number for number, name in enumerate(catalogue)}
        number_of = np.vectorize(number.__getitem__, otypes=[np.int32])
        stand_ins = [number_of(o) if are_names(o) else evaluate(o) for o in operands]
        if not catalogue or any(stand_in is None for stand_in in stand_ins):
            return self._opaque(equation, catalogue)
        lookup = np.empty(len(catalogue), object)
        lookup[:] = catalogue
        return [np.asarray(lookup[moved]) for moved in apply(equation, stand_ins)]

    def _opaque(self, equation: Any, sources: Sequence[Name]) -> list[Value]:
        return [
            self._opaque_keys(sources, outvar.aval.shape)
            if is_key(outvar.aval)
            else Unknown()
            for outvar in equation.outvars
        ]

    def _opaque_keys(self, sources: Sequence[Name], shape: tuple[int, ...]) -> Names:
        identity, keys = object(), np.empty(shape, object)
        for index in np.ndindex(shape):
            keys[index] = self.book.opaque(tuple(sources), (identity, index))
        return keys

    # Control flow.

    def _scan(self, equation: Any, operands: list[Value]) -> list[Value]:
        parameters = equation.params
        n_constants, n_carry = parameters["num_consts"], parameters["num_carry"]
        constants = operands[:n_constants]
        carry = operands[n_constants : n_constants + n_carry]
        xs = operands[n_constants + n_carry :]
        length = parameters["length"]
        steps = range(length)[:: -1 if parameters["reverse"] else 1]
        ys: dict[int, list[Value]] = {}
        for step in steps[:_LONGEST_SCAN]:
            inputs = [*constants, *carry, *(row(x, step) for x in xs)]
            results = self.closed(parameters["jaxpr"], inputs)
            carry, ys[step] = results[:n_carry], results[n_carry:]
        if not 0 < length <= _LONGEST_SCAN:
            return self._opaque(equation, _names_among(operands))
        stacked = [
            np.stack(column) if are_names(column[0]) else Unknown()
            for column in zip(*(ys[step] for step in range(length)), strict=True)
        ]
        return [*carry, *stacked]

    def _while(self, equation: Any, operands: list[Value]) -> list[Value]:
        parameters = equation.params
        n_condition, n_body = parameters["cond_nconsts"], parameters["body_nconsts"]
        condition = operands[:n_condition]
        body = operands[n_condition : n_condition + n_body]
        carry = operands[n_condition + n_body :]
        before = carry
        # Twice: what the first turn leaves undone, the second does again.
        for _ in range(2):
            self.closed(parameters["cond_jaxpr"], [*condition, *carry])
            before, carry = (
                carry,
                self.closed(parameters["body_jaxpr"], [*body, *carry]),
            )
        sources = _names_among(operands)
        return [
            self._left_by_loop(old, new, sources) if are_names(new) else Unknown()
            for old, new in zip(before, carry, strict=True)
        ]

    def _left_by_loop(
        self, before: Names, after: Names, sources: Sequence[Name]
    ) -> Names:
        unchanged = np.equal(before, after)
        return np.where(unchanged, after, self._opaque_keys(sources, after.shape))

    def _cond(self, equation: Any, operands: list[Value]) -> list[Value]:
        which, *arguments = operands
        branches = equation.params["branches"]
        choice = evaluate(which)
        if choice is not None:
            index = min(max(int(choice), 0), len(branches) - 1)
            return self.closed(branches[index], arguments)
        outer, results = self.book, list[list[Value]]()
        books = [outer.copy() for _ in branches]
        for branch, book in zip(branches, books, strict=True):
            self.book = book
            results.append(self.closed(branch, arguments))
        self.book = outer
        for book in books:
            outer.merge(book)
        return [
            self._select(Unknown(), list(cases)) if are_names(cases[0]) else Unknown()
            for cases in zip(*results, strict=True)
        ]


def _names_among(values: Sequence[Value]) -> list[Name]:
    return [name for value in values if are_names(value) for name in value.flat]


def _inner_jaxpr(equation: Any) -> Any:
    """What a `jit`, a `checkpoint` or a function with its own derivative calls."""
    for parameter in ("jaxpr", "call_jaxpr", "fun_jaxpr"):
        inner = equation.params.get(parameter)
        if isinstance(inner, jex.ClosedJaxpr | jex.Jaxpr):
            return inner
    return None


def _is_distribution(equation: Any, inner: Any, operands: list[Value]) -> bool:
    """Whether this calls a function of `jax.random` that gives numbers.

    That is one draw, whatever goes on inside: `poisson` draws from one key in two
    ways and keeps one of them.
    """
    debug_info = getattr(getattr(inner, "jaxpr", inner), "debug_info", None)
    source = str(getattr(debug_info, "func_src_info", ""))
    gives_keys = any(is_key(outvar.aval) for outvar in equation.outvars)
    return JAX_RANDOM in source and not gives_keys and any(map(are_names, operands))
