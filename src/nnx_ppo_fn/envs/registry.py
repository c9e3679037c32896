"""Environments by name."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, final, NamedTuple

from .._extras import import_extra, MissingExtraError as MissingExtraError
from .._suggest import did_you_mean
from ._adapters import leniency, MissingAssetsError as MissingAssetsError
from .cartpole import CartPole
from .pendulum import Pendulum
from .probes import (
    ActionOfObservationProbe,
    ActionProbe,
    CountingProbe,
    DiscountingProbe,
    MemoryProbe,
    TruncationProbe,
    ValueOfObservationProbe,
    ValueProbe,
)
from .types import DescribedEnv


_BUILT_IN: Mapping[str, Callable[..., DescribedEnv]] = {
    "cartpole": CartPole,
    "hidden-cartpole": partial(CartPole, hide_velocity=True),
    "pendulum": Pendulum,
    "probe:value": ValueProbe,
    "probe:value-of-observation": ValueOfObservationProbe,
    "probe:discounting": DiscountingProbe,
    "probe:action": ActionProbe,
    "probe:action-of-observation": ActionOfObservationProbe,
    "probe:memory": MemoryProbe,
    "probe:truncation": TruncationProbe,
    "probe:counting": CountingProbe,
}

_ABOUT_BUILT_IN = "cart-pole and pendulum, and probes of one capability each"


class _Source(NamedTuple):
    """Another library's environments: `module` adapts them, and is imported at the
    first use, since it needs `extra`."""

    prefix: str
    extra: str
    module: str
    about: str

    @property
    def pattern(self) -> str:
        """What the names look like."""
        return f"{self.prefix}<id>"


_SOURCES = (
    _Source(
        "playground:",
        "playground",
        "._playground",
        "MuJoCo Playground: the control suite, locomotion and manipulation, on MJX",
    ),
    _Source("brax:", "brax", "._brax", "Brax: locomotion and pendulums"),
    _Source(
        "gymnax:",
        "gymnax",
        "._gymnax",
        "gymnax: classic control, bsuite, MinAtar and small tasks",
    ),
)


PREFIXES = tuple(source.prefix for source in _SOURCES)
"""What the names of other libraries' environments begin with."""


@final
class UnknownEnvironmentError(ValueError):
    """No environment has this name."""


@final
class Family(NamedTuple):
    """Environments whose names begin alike.

    - `prefix`: the beginning, such as `"gymnax:"`; empty for the built-in ones.
    - `extra`: what to install for them, such as `"gymnax"`; empty if nothing.
    - `installed`: whether they can be made here.
    - `ids`: what may follow the prefix; empty if not installed.
    - `about`: what they are, in one line.
    """

    prefix: str
    extra: str
    installed: bool
    ids: tuple[str, ...]
    about: str

    @property
    def names(self) -> tuple[str, ...]:
        """What `make` accepts."""
        return tuple(self.prefix + id for id in self.ids)


def make(name: str, **options: Any) -> DescribedEnv:
    """Builds an environment by its name.

    **Arguments:**

    - `name`: one of `available()`, or the prefix of a family and an id that the
      library behind it registers: `playground:<id>`, `brax:<id>`, `gymnax:<id>`.
    - `options`: settings of that environment, such as `max_episode_length`.

    **Returns:**

    An environment that compares and hashes by value.

    **Raises:**

    - `UnknownEnvironmentError`, a `ValueError`, if there is no such name.
    - `TypeError` if `name` is not a string, or the environment has no such option.
    - `MissingExtraError`, an `ImportError`, if the name needs an extra that is not
      installed.
    - `MissingAssetsError`, an `ImportError`, if it needs files that cannot be
      downloaded.
    """
    if not isinstance(name, str):
        raise TypeError(
            f"expected a name such as 'cartpole', got {type(name).__name__}"
        )
    if name in _BUILT_IN:
        return _BUILT_IN[name](**options)
    for source in _SOURCES:
        if name.startswith(source.prefix):
            adapter = _adapter(source)
            id = name.removeprefix(source.prefix)
            if id in adapter.registered_ids():
                return adapter.make(id, **options)
            raise _unknown(name, _names(source))
    for source in _SOURCES:
        if name.casefold().startswith(source.prefix):
            raise _unknown(name, _names(source))
    raise _unknown(name, [*_BUILT_IN, *(source.pattern for source in _SOURCES)])


def available(*, extras: bool = False) -> tuple[str, ...]:
    """The names that `make` accepts.

    **Arguments:**

    - `extras`: whether to import the installed extras and list theirs as well.

    **Returns:**

    The names of the built-in environments; with `extras`, then those of all installed
    families.
    """
    if not extras:
        return tuple(_BUILT_IN)
    return tuple(name for family in families() for name in family.names)


def families() -> tuple[Family, ...]:
    """All families of environments, the built-in one first.

    Imports the libraries that are installed, which takes seconds.
    """
    return (
        Family("", "", True, tuple(_BUILT_IN), _ABOUT_BUILT_IN),
        *map(_family, _SOURCES),
    )


def _family(source: _Source) -> Family:
    try:
        ids = _adapter(source).registered_ids()
    except MissingExtraError:
        return Family(source.prefix, source.extra, False, (), source.about)
    return Family(source.prefix, source.extra, True, ids, source.about)


def _adapter(source: _Source) -> Any:
    with leniency():
        return import_extra(
            source.module,
            package=__package__,
            extra=source.extra,
            purpose=source.pattern,
        )


def _names(source: _Source) -> list[str]:
    return [source.prefix + id for id in _adapter(source).registered_ids()]


def _unknown(name: str, names: list[str]) -> UnknownEnvironmentError:
    return UnknownEnvironmentError(
        f"there is no environment {name!r}{did_you_mean(name, names)}; the names are: "
        f"{', '.join(names)}"
    )
