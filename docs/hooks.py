"""Puts into the pages what the code says better: tables of settings and environments.

A line `<!-- generated: NAME ARGUMENT -->` in a page becomes the table of that name.
"""

import dataclasses
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import NoneType, UnionType
from typing import Any, get_args, get_origin, Literal, Union

import equinox as eqx
import jax

from nnx_ppo_fn import (
    EvalConfig,
    LoggingLevel,
    PPOConfig,
    presets,
    TrainConfig,
    VideoConfig,
)
from nnx_ppo_fn.cli.docstrings import field_texts
from nnx_ppo_fn.envs import available, families, make


_MARK = re.compile(r"<!-- generated: (\w+)(?: (\w+))? -->")

SETTINGS: Mapping[str, type[Any]] = {
    owner.__name__: owner
    for owner in (
        TrainConfig,
        PPOConfig,
        EvalConfig,
        VideoConfig,
        presets.NetworkOptions,
    )
}
"""The classes whose fields the parameters page lists."""


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Called by mkdocs for every page."""
    return filled(markdown)


def filled(markdown: str) -> str:
    """A page with its tables in the place of their marks."""

    def table(mark: re.Match[str]) -> str:
        name, argument = mark.groups()
        return TABLES[name](*([argument] if argument else []))

    return _MARK.sub(table, markdown)


def settings(class_name: str) -> str:
    """Every field of a configuration with its option, type, default and text."""
    owner = SETTINGS[class_name]
    texts = field_texts(owner)
    rows = [
        (f"`{field.name}`", _type(field.type), _default(field), texts[field.name])
        for field in dataclasses.fields(owner)
    ]
    return _table(("Name", "Type", "Default", "What it means"), rows)


def environments() -> str:
    """The built-in environments."""
    rows = []
    for name in available():
        env = make(name)
        unit = "choice" if env.discrete else "number"
        several = "" if env.action_size == 1 else "s"
        bounds = "" if env.discrete else " in [-1, 1]"
        rows.append(
            (
                f"`{name}`",
                f"{env.observation_size}",
                f"{env.action_size} {unit}{several}{bounds}",
                f"{env.max_episode_length}",
            )
        )
    head = ("Name", "Observation", "Action", "Longest episode")
    return _table(head, rows)


def environment_families() -> str:
    """The families of environments that extras bring."""
    rows = [
        (f"`{family.prefix}<id>`", f"`{family.extra}`", family.about)
        for family in families()
        if family.prefix
    ]
    return _table(("Name", "Extra", "What it is"), rows)


def common_settings() -> str:
    """What presets start from, where it is not the library's default."""
    plain = flat_settings(
        presets.Preset(TrainConfig(), presets.NetworkOptions(), reward_scale=1.0)
    )
    rows = [
        (f"`{setting}`", f"`{_shown(value)}`", f"`{_shown(plain[setting])}`")
        for setting, value in flat_settings(presets.preset("")).items()
        if value != plain[setting]
    ]
    return _table(("Setting", "Here", "Library's default"), rows)


def preset_differences() -> str:
    """Every preset, by what it changes of the common settings."""
    common = flat_settings(presets.preset(""))
    rows = []
    for name, preset in known_presets().items():
        changes = [
            f"`{setting}={_shown(value)}`"
            for setting, value in flat_settings(preset).items()
            if value != common[setting]
        ]
        rows.append((f"`{name}`", ", ".join(changes) or "nothing"))
    return _table(("Environment", "What is changed"), rows)


def known_presets() -> dict[str, presets.Preset]:
    """All presets that there are, by the name of an environment or of a family."""
    return {
        **presets.PRESETS,
        **{f"{family}<id>": one for family, one in presets.FAMILY_PRESETS.items()},
    }


def flat_settings(preset: presets.Preset) -> dict[str, Any]:
    """Every setting of a preset under the name of its option."""
    flat: dict[str, Any] = {}

    def add(node: Any, prefix: str) -> None:
        for field in dataclasses.fields(node):
            value = getattr(node, field.name)
            if isinstance(value, eqx.Module):
                inner = f"{field.name}." if field.name in ("eval", "video") else prefix
                add(value, inner)
            else:
                flat[prefix + field.name] = value

    add(preset, "")
    return flat


TABLES: Mapping[str, Callable[..., str]] = {
    one.__name__: one
    for one in (
        settings,
        environments,
        environment_families,
        common_settings,
        preset_differences,
    )
}


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(
        "| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |"
        for line in lines
    )


def _type(annotation: Any) -> str:
    """A type in the words of someone who writes a value; arrays are for sweeps."""
    if isinstance(annotation, type):
        return f"`{annotation.__name__}`"
    if get_origin(annotation) is Literal:
        return " or ".join(f'`"{choice}"`' for choice in get_args(annotation))
    if get_origin(annotation) in (Union, UnionType):
        parts = [part for part in get_args(annotation) if part not in (int, jax.Array)]
        return " or ".join("`None`" if p is NoneType else _type(p) for p in parts)
    return f"`{annotation}`"


def _default(field: Any) -> str:
    if field.default_factory is not dataclasses.MISSING:
        return f"`{field.default_factory.__name__}()`"
    return f"`{_shown(field.default)}`"


def _shown(value: Any) -> str:
    if isinstance(value, LoggingLevel):
        names = [flag.name or "" for flag in value]
        return ", ".join(names) if names else "NONE"
    if isinstance(value, bool) or value is None:
        return str(value)
    if isinstance(value, int):
        return f"{value:_}"
    if isinstance(value, float):
        return f"{value:g}"
    return str(value)
