"""Environments by name."""

from collections.abc import Callable, Mapping
from difflib import get_close_matches
from functools import partial
from typing import Any, final

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

_GYMNAX = "gymnax:"


@final
class UnknownEnvironmentError(ValueError):
    """No environment has this name."""


@final
class MissingExtraError(ImportError):
    """The environment needs a package that is not installed."""


def make(name: str, **options: Any) -> DescribedEnv:
    """Build an environment by its name.

    **Arguments:**

    - `name`: one of [`nnx_ppo_fn.envs.available`][]. `gymnax:<id>` stands for any
        environment that gymnax registers under `<id>`.
    - `options`: settings of that environment, such as `max_episode_length`.

    **Returns:**

    An environment that compares and hashes by value.

    **Raises:**

    - [`nnx_ppo_fn.envs.UnknownEnvironmentError`][], a `ValueError`, if there is no
        such name.
    - [`nnx_ppo_fn.envs.MissingExtraError`][], an `ImportError`, if the name needs an
        extra that is not installed.
    """
    if name in _BUILT_IN:
        return _BUILT_IN[name](**options)
    if name.startswith(_GYMNAX):
        gymnax = _import_gymnax_adapter()
        identifiers = [_GYMNAX + known for known in gymnax.registered_ids()]
        if name in identifiers:
            return gymnax.GymnaxEnv(name.removeprefix(_GYMNAX), **options)
        raise _unknown(name, identifiers)
    raise _unknown(name, [*_BUILT_IN, f"{_GYMNAX}<id>"])


def available(*, extras: bool = False) -> tuple[str, ...]:
    """The names that [`nnx_ppo_fn.envs.make`][] accepts.

    **Arguments:**

    - `extras`: whether to import the installed extras and list theirs as well.

    **Returns:**

    The names of the built-in environments; with `extras`, then all `gymnax:<id>`.
    """
    names = list(_BUILT_IN)
    if extras:
        try:
            gymnax = _import_gymnax_adapter()
        except MissingExtraError:
            return tuple(names)
        names += [_GYMNAX + known for known in gymnax.registered_ids()]
    return tuple(names)


def _import_gymnax_adapter() -> Any:
    try:
        from . import _gymnax
    except ModuleNotFoundError as error:
        package = (error.name or "gymnax").split(".")[0]
        raise MissingExtraError(
            f"The gymnax environments need the package {package!r}, which is not "
            'installed. Run: pip install "nnx_ppo_fn[gymnax]"'
        ) from error
    return _gymnax


def _unknown(name: str, names: list[str]) -> UnknownEnvironmentError:
    matches = get_close_matches(name, names, n=1, cutoff=0.4)
    hint = f" Did you mean {matches[0]!r}?" if matches else ""
    return UnknownEnvironmentError(
        f"There is no environment {name!r}.{hint} The names are: {', '.join(names)}."
    )
