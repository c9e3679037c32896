"""The paths of modules, and putting something around what stands there.

A path says where a module stands: `[1].action[0]` is the first module in the `action`
port of the second module of a `Sequential`. The network itself has the empty path. What
stands around a module stands at that module's path.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, cast

from .._suggest import did_you_mean
from ._routing import named, Parent
from ._wrapper import around, unwrapped, Wrapper
from .types import AnyModule


ABSENT = "no module stands at {}"


def below(path: str, name: str | int) -> str:
    """The path of a child.

    It is `path[0]` for a position, `path.name` for a name, and `path['a.b']` for a name
    in which there are characters that mean something in paths.

    **Arguments:**

    - `path`: of its parent.
    - `name`: of the child, or its position.
    """
    if isinstance(name, int) or name.isdecimal():
        return f"{path}[{name}]"
    return f"{path}[{name!r}]" if set(".[]*") & set(name) else f"{path}.{name}"


def modules_by_path(
    module: AnyModule, path: str = ""
) -> Iterator[tuple[str, AnyModule]]:
    """A module and all that its parents run, in order, without what is around them."""
    module = unwrapped(module)[1]
    yield path, module
    if isinstance(module, Parent):
        for name, child in named(module.children()).items():
            yield from modules_by_path(child, below(path, name))


def rebuilt(
    module: AnyModule, change: Callable[[str, AnyModule], AnyModule], path: str = ""
) -> AnyModule:
    """A network in which each module is what `change` makes of it.

    **Arguments:**

    - `module`: the network.
    - `change`: takes the path of a module, and the module with all that is around it.
      Its own children have been through it before.
    """
    return change(path, _with_rebuilt_children(module, change, path))


def _with_rebuilt_children(
    module: AnyModule, change: Callable[[str, AnyModule], AnyModule], path: str
) -> AnyModule:
    if isinstance(module, Wrapper):
        return around(module, _with_rebuilt_children(module.wrapped, change, path))
    if not isinstance(module, Parent):
        return module
    return module.with_children(
        {
            name: rebuilt(child, change, below(path, name))
            for name, child in named(module.children()).items()
        }
    )


def matching(pattern: Any, paths: Iterable[str], *, absent: str = ABSENT) -> list[str]:
    """The paths that a pattern means, in their order.

    **Arguments:**

    - `pattern`: a path, which means itself, or else a pattern in which `*` stands for
      any characters. All others, brackets included, stand for themselves.
    - `paths`: of all modules.
    - `absent`: the message where nothing matches, with `{}` for the pattern.

    **Raises:**

    `TypeError` for what is no string, and `ValueError` where nothing matches.
    """
    if not isinstance(pattern, str):
        raise TypeError(
            f"expected the path of a module, such as '[1].action[0]', got {pattern!r}"
        )
    every = list(paths)
    if pattern in every:
        return [pattern]
    expression = ".*".join(map(re.escape, pattern.split("*")))
    found = [path for path in every if re.fullmatch(expression, path, re.DOTALL)]
    if not found:
        raise ValueError(
            f"{absent.format(repr(pattern))}{did_you_mean(pattern, every)}; paths are "
            f"{', '.join(map(repr, every))}"
        )
    return found


def selected(select: Any, paths: Iterable[str], *, absent: str = ABSENT) -> list[str]:
    """The paths that one or several patterns mean, in the order of the patterns.

    **Arguments:**

    - `select`: a pattern, or a sequence of them.
    - `paths`, `absent`: as in `matching`.

    **Raises:**

    `TypeError` for anything else, and `ValueError` where nothing matches a pattern.
    """
    if isinstance(select, str):
        return matching(select, paths, absent=absent)
    if not isinstance(select, Iterable) or isinstance(select, bytes):
        raise TypeError(
            "expected the path of a module, such as '[1].action[0]', or several, got "
            f"{select!r}"
        )
    every = list(paths)
    found = (matching(one, every, absent=absent) for one in cast(Iterable[Any], select))
    return list(dict.fromkeys(path for paths in found for path in paths))
