"""A network at a glance: its modules, their carries, and what trains."""

import dataclasses
import math
from collections.abc import Iterator
from typing import Any, cast, final, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.tree_util as jtu
import numpy as np

from .._bytes import bytes_text
from .._tree import is_key
from ._errors import located
from ._routing import named, Parent
from ._trainable import NonTrainable
from ._wrapping import below, unwrapped, Wrapper
from .convolution import Convolution
from .feedforward import Stateless
from .lifting import layer_name, Lift
from .types import AnyModule, expect_module, has_inference_flag, StatefulModule


_LONGEST_CARRY = 30
_CONVOLUTION_DETAILS = frozenset(
    {"num_spatial_dims", "stride", "padding", "output_padding", "dilation", "groups"}
)


@final
class Row(NamedTuple):
    """One module in a summary.

    - `place`: where it stands, such as `[1].action[0]`; empty for the network. It is
      the path that `with_recording` and `with_override` take, except for a module that
      something else than a container holds, which they cannot reach.
    - `label`: the last part of the place.
    - `name`: its class, with its sizes.
    - `depth`: how many modules it stands in.
    - `carry`: the carry of one environment, such as `float32[8]`, without that of
      modules that have a row of their own; empty where there is none.
    - `trainable`, `non_trainable`: how many numbers it holds itself, without those in
      modules that have a row of their own.
    - `stays_noisy`: whether it draws and has no `inference` flag.
    - `marks`: `recorded` or `overridden` or both, the innermost first, if it is.
    """

    place: str
    label: str
    name: str
    depth: int
    carry: str
    trainable: int
    non_trainable: int
    stays_noisy: bool
    marks: tuple[str, ...]


@final
@dataclasses.dataclass(frozen=True, repr=False)
class Summary:
    """What `summary` found; prints as a table.

    - `rows`: one per module, in the order in which they stand in the network.
    - `bytes`: of all numbers.
    """

    rows: tuple[Row, ...]
    bytes: int

    @property
    def trainable(self) -> int:
        """How many numbers train."""
        return sum(row.trainable for row in self.rows)

    @property
    def non_trainable(self) -> int:
        """How many do not."""
        return sum(row.non_trainable for row in self.rows)

    def __str__(self) -> str:
        """The table."""
        header = ("module", "carry of an environment", "trainable", "not trainable")
        cells = [
            (
                "  " * row.depth
                + ", ".join((f"{row.label} {row.name}".lstrip(), *row.marks)),
                _shortened(row.carry),
                f"{row.trainable:,}" if row.trainable else "",
                f"{row.non_trainable:,}" if row.non_trainable else "",
            )
            for row in self.rows
        ]
        total = ("total", "", f"{self.trainable:,}", f"{self.non_trainable:,}")
        table = [header, *cells, total]
        widths = [max(len(line[column]) for line in table) for column in range(4)]
        lines = [
            "  ".join(
                cell.ljust(width) if column < 2 else cell.rjust(width)
                for column, (cell, width) in enumerate(zip(line, widths, strict=True))
            ).rstrip()
            for line in table
        ]
        rule = "-" * (sum(widths) + 6)
        notes = [
            f"{row.place or 'the network'} ({row.name}) draws and has no inference "
            "flag: it stays noisy in evaluations"
            for row in self.rows
            if row.stays_noisy
        ]
        size = f"{bytes_text(self.bytes)} of arrays"
        return "\n".join([lines[0], rule, *lines[1:-1], rule, lines[-1], size, *notes])

    __repr__ = __str__


def summary(network: Any) -> Summary:
    """What a network is made of: a row per module, with its carry and its numbers.

    An array that stands in two places is counted in both: training unties it. What
    counts as trainable is what `partition_trainable` says.

    **Arguments:**

    - `network`: any module; its arrays may be `jax.ShapeDtypeStruct`s, as from
      `equinox.filter_eval_shape`, so that nothing need be made.

    **Returns:**

    A `Summary`, to print or to read.

    **Raises:**

    `CompositionError` for what is not a module.

    **Example:**

    ```python
    print(summary(network))
    ```
    """
    expect_module("summary", network)
    rows = tuple(_rows(network, "", "", 0, frozen=False, has_carry=True))
    arrays = [leaf for leaf in jtu.tree_leaves(network) if _is_array(leaf)]
    return Summary(
        rows,
        sum(math.prod(leaf.shape) * leaf.dtype.itemsize for leaf in arrays),
    )


def _rows(
    module: AnyModule,
    place: str,
    label: str,
    depth: int,
    *,
    frozen: bool,
    has_carry: bool,
) -> Iterator[Row]:
    """A module's row, then those of the modules in it.

    `frozen` modules sit in a `NonTrainable`; one without `has_carry` sits in a module
    that is no `Parent` and carries for it.
    """
    wrappers, module = unwrapped(module)
    counts = {True: 0, False: 0}

    def count(node: Any, frozen: bool) -> None:
        if _is_array(node):
            trains = not frozen and jnp.issubdtype(node.dtype, jnp.inexact)
            counts[trains] += math.prod(node.shape)

    for wrapper in wrappers:
        for _, node, node_frozen in _contents(_own_fields(wrapper), frozen):
            count(node, node_frozen)
    parts: list[tuple[str, AnyModule, bool]] = []
    is_parent = isinstance(module, Parent)
    names = _names(module) if is_parent else {}
    for path, node, node_frozen in _contents(module, frozen):
        if isinstance(node, StatefulModule):
            known = names.get(id(node))
            parts.append(
                (known.pop(0) if known else jtu.keystr(path), node, node_frozen)
            )
        else:
            count(node, node_frozen)
    carry: Any = ()
    if has_carry:
        with located(place or "summary", module):
            carry = _own_carry(module)
    draws = any(map(is_key, jtu.tree_leaves(carry)))
    yield Row(
        place,
        label,
        _description(module),
        depth,
        _carry_text(carry),
        counts[True],
        counts[False],
        draws and not has_inference_flag(module),
        tuple(wrapper.mark for wrapper in reversed(wrappers)),
    )
    for part_label, part, part_frozen in parts:
        yield from _rows(
            part,
            place + part_label,
            part_label,
            depth + 1,
            frozen=part_frozen,
            has_carry=has_carry and is_parent,
        )


def _own_fields(wrapper: Wrapper) -> list[Any]:
    """What a wrapper holds beside the module that it stands around."""
    fields = dataclasses.fields(wrapper)
    return [getattr(wrapper, one.name) for one in fields if one.name != "wrapped"]


def _contents(tree: Any, frozen: bool) -> Iterator[tuple[tuple[Any, ...], Any, bool]]:
    """Leaves and the outermost modules inside a tree, and whether they are frozen."""

    def is_leaf(node: Any) -> bool:
        return node is not tree and isinstance(node, StatefulModule | NonTrainable)

    for path, node in jtu.tree_leaves_with_path(tree, is_leaf=is_leaf):
        if not isinstance(node, NonTrainable):
            yield path, node, frozen
            continue
        value = cast(NonTrainable[Any], node).value
        if isinstance(value, StatefulModule):
            yield path, value, True
            continue
        for inner_path, inner, _ in _contents(value, True):
            yield (*path, *inner_path), inner, True


def _names(parent: Parent[Any, Any]) -> dict[int, list[str]]:
    """How a module calls its children, by their identity."""
    names: dict[int, list[str]] = {}
    for name, child in named(parent.children()).items():
        names.setdefault(id(child), []).append(below("", name))
    return names


def _own_carry(module: AnyModule) -> list[Any]:
    """The leaves of a module's carry that are not its children's."""
    keys = jax.eval_shape(lambda: jax.random.split(jax.random.key(0), 1))
    carry = eqx.filter_eval_shape(
        lambda module, keys: module.initialize_state(keys), module, keys
    )
    parts = module.carries_of_children(carry) if isinstance(module, Parent) else ()
    of_children = set(map(id, jtu.tree_leaves(parts)))
    return [leaf for leaf in jtu.tree_leaves(carry) if id(leaf) not in of_children]


def _carry_text(carry: Any) -> str:
    """Dtypes and shapes without the batch axis; equal neighbours are counted."""
    counted: list[tuple[str, int]] = []
    for leaf in jtu.tree_leaves(carry):
        kind = "key" if is_key(leaf) else leaf.dtype.name
        sizes = ", ".join(map(str, leaf.shape[1:]))
        text = f"{kind}[{sizes}]" if sizes else kind
        if counted and counted[-1][0] == text:
            counted[-1] = text, counted[-1][1] + 1
        else:
            counted.append((text, 1))
    return ", ".join(
        text if count == 1 else f"{count} x {text}" for text, count in counted
    )


def _description(module: Any) -> str:
    """A class with its sizes: `Dense(8, 64)`, `Lift(Conv2d(4, 16, (3, 3)))`."""
    if isinstance(module, Lift | Convolution):
        inside = [_description(module.layer)]
    elif isinstance(module, Stateless):
        inside = [layer_name(module.fn)]
    elif isinstance(module, eqx.Module):
        inside = [
            str(getattr(module, field.name))
            for field in dataclasses.fields(module)
            if field.metadata.get("static", False)
            and field.name not in _CONVOLUTION_DETAILS
            and _is_size(getattr(module, field.name))
        ]
    else:
        return layer_name(module)
    name = type(module).__name__
    return f"{name}({', '.join(inside)})" if inside else name


def _is_size(value: Any) -> bool:
    if isinstance(value, tuple):
        items = cast(tuple[Any, ...], value)
        return bool(items) and all(map(_is_size, items))
    return isinstance(value, int) and not isinstance(value, bool)


def _is_array(leaf: Any) -> bool:
    """Whether a leaf is an array of numbers, or stands for one by its shape."""
    kinds = (jax.Array, np.ndarray, jax.ShapeDtypeStruct)
    return isinstance(leaf, kinds) and not is_key(leaf)


def _shortened(text: str) -> str:
    return text if len(text) <= _LONGEST_CARRY else f"{text[: _LONGEST_CARRY - 3]}..."
