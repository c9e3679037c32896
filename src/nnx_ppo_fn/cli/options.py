"""The options of `train`: one for every field of the configuration.

Names, types and texts come from the configuration's classes; defaults come from the
environment's preset.
"""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, final

import equinox as eqx
import tyro

from ..algorithms.config import LoggingLevel, TrainConfig
from ..presets import NetworkOptions, POLICIES, Preset, preset
from .docstrings import field_texts, plain, summary
from .parsing import options_class, parse
from .usage import refusing
from .values import (
    COUNT,
    FOLDER,
    kind_of,
    NAME,
    PIXELS,
    POSITIVE,
    SEED,
    SIZE,
    STEPS,
    switch,
)


DEFAULT_ENV = "hidden-cartpole"
DEFAULT_POLICY = "lstm"

ABOUT = (
    "Trains a policy and writes a run folder: settings, metrics, picture, network.\n\n"
    "What is not given comes from ENV's preset, which `train ENV --help` shows."
)

# What is decided from the budget and the environment where nobody says otherwise.
_DECIDED = {
    "iterations_per_call": "from the step budget",
    "every_steps": "a twentieth of the step budget",
    "max_episode_length": "the environment's time limit",
}
_KINDS = {
    "seed": SEED,
    "learning_rate": POSITIVE,
    "reward_scale": POSITIVE,
    "hidden_size": SIZE,
    "latent_size": SIZE,
    "n_epochs": SIZE,
    "total_steps": STEPS,
    "every_steps": STEPS,
    "checkpoint_every_steps": STEPS,
    "height": PIXELS,
    "width": PIXELS,
}


def _sections_of(owner: type[Any]) -> Mapping[str, type[Any]]:
    """The fields of a configuration that are configurations themselves."""
    return {
        field.name: field.type
        for field in dataclasses.fields(owner)
        if isinstance(field.type, type) and issubclass(field.type, eqx.Module)
    }


_SECTIONS = _sections_of(TrainConfig)


@final
@dataclasses.dataclass(frozen=True)
class Request:
    """What `train` is asked for.

    - `env`, `policy`: names.
    - `settings`: the environment's preset with what was changed.
    - `decided`: what `build` is to decide by itself, where it is `None`.
    - `out`: the folder, if one was named.
    - `seeds`: how many seeds to train, if that was said.
    - `quiet`: whether to print the run folder alone.
    - `tensorboard`: whether to write for TensorBoard as well.
    - `wandb`: the project to log to, if one was named.
    """

    env: str
    policy: str
    settings: Preset
    decided: Mapping[str, int | None]
    out: Path | None
    seeds: int | None
    quiet: bool
    tensorboard: bool
    wandb: str | None

    @property
    def seed(self) -> int:
        """The first seed."""
        return int(self.settings.config.seed)


def _options_of(owner: type[Any], prefix: str = "") -> list[tuple[str, Any]]:
    """The fields of a configuration as `(name, annotation)`; sections left out."""
    texts = field_texts(owner)
    options: list[tuple[str, Any]] = []
    for field in dataclasses.fields(owner):
        if field.name in _sections_of(owner):
            continue
        text = plain(texts[field.name])
        if field.type is LoggingLevel:
            text += f" Any of {', '.join(LoggingLevel.__members__)}."
        kind = _KINDS.get(field.name) or kind_of(field.type)
        if kind is None:
            options.append((field.name, Annotated[bool, tyro.conf.arg(help=text)]))
        else:
            flag = "--" + (prefix + field.name).replace("_", "-")
            hint = (
                f"(default: {_DECIDED[field.name]})"
                if _is_decided(owner, field.name)
                else None
            )
            options.append((field.name, kind.option(flag, text, hint=hint)))
    return options


def _is_decided(owner: type[Any], name: str) -> bool:
    return name in _DECIDED and owner in (TrainConfig, _SECTIONS["eval"])


def _section(name: str, *owners: type[Any], prefix: str = "") -> type[Any]:
    """A dataclass with the options of one or more configurations."""
    options = [option for owner in owners for option in _options_of(owner, prefix)]
    section = options_class(
        name, *((*option, dataclasses.MISSING) for option in options)
    )
    section.__doc__ = plain(summary(owners[0]))
    return section


# Sections in the order of the help. Only `eval` and `video` go by a prefix.
_UNPREFIXED = {
    "run": _section("run", TrainConfig, Preset),
    "ppo": _section("ppo", _SECTIONS["ppo"]),
    "network": _section("network", NetworkOptions),
}
_PREFIXED = {
    name: _section(name, owner, prefix=f"{name}.")
    for name, owner in _SECTIONS.items()
    if name not in _UNPREFIXED
}


# The options that belong to the command rather than to the configuration.
_OWN: tuple[tuple[str, Any, Any], ...] = (
    (
        "env",
        NAME.option(
            "ENV",
            "the environment, such as hidden-cartpole, pendulum, gymnax:CartPole-v1; "
            "`nnx-ppo-fn envs` lists all.",
            positional=True,
        ),
        DEFAULT_ENV,
    ),
    ("policy", NAME.option("--policy", f"{', '.join(POLICIES)}."), DEFAULT_POLICY),
    (
        "out",
        FOLDER.option(
            "--out",
            "the run folder, which must not hold anything yet.",
            hint="(default: runs/<env>-<policy>-seed<seed>-<time>)",
        ),
        None,
    ),
    (
        "seeds",
        COUNT.option(
            "--seeds",
            "train this many seeds at once, from --seed on, each with a run folder "
            "inside the run folder.",
            hint="",
        ),
        None,
    ),
    ("quiet", switch("print nothing but the run folder."), False),
    (
        "tensorboard",
        switch("write the metrics for TensorBoard as well, into the run folder."),
        False,
    ),
    (
        "wandb",
        NAME.option(
            "--wandb", "log to this project of Weights & Biases as well.", hint=""
        ),
        None,
    ),
)

TrainOptions: type[Any] = options_class(
    "TrainOptions",
    *_OWN,
    *(
        (name, Annotated[section, tyro.conf.OmitArgPrefixes], dataclasses.MISSING)
        for name, section in _UNPREFIXED.items()
    ),
    *((name, section, dataclasses.MISSING) for name, section in _PREFIXED.items()),
)
"""All options of `train`."""


def parse_train(arguments: Sequence[str]) -> Request:
    """Reads the options of `train`.

    **Arguments:**

    - `arguments`: the words after `train`.

    **Raises:**

    - `UsageError` where an option is unknown or has an impossible value.
    - `SystemExit` after `--help`.
    """
    words = [word for word in arguments if word not in ("-h", "--help")]
    asked = len(words) < len(arguments)
    # First for the environment alone, whose preset has the defaults of the rest.
    env = _parse(words, preset(DEFAULT_ENV)).env
    base = preset(env)
    parsed = _parse([*words, "--help"] if asked else words, base)
    with refusing(ValueError, TypeError):
        settings, decided = _settings(parsed, base)
    own = {name: getattr(parsed, name) for name, _, _ in _OWN}
    return Request(settings=settings, decided=decided, **own)


def _parse(words: Sequence[str], base: Preset) -> Any:
    return parse(
        TrainOptions, words, command="train", about=ABOUT, default=_defaults(base)
    )


def _defaults(base: Preset) -> Any:
    """A preset as options."""
    sources = {
        "run": (base.config, base),
        "network": (base.network,),
        **{name: (getattr(base.config, name),) for name in _SECTIONS},
    }
    filled: dict[str, Any] = {}
    for name, section in {**_UNPREFIXED, **_PREFIXED}.items():
        values: dict[str, Any] = {}
        for field in dataclasses.fields(section):
            (source,) = (s for s in sources[name] if hasattr(s, field.name))
            is_open = _is_decided(type(source), field.name)
            values[field.name] = None if is_open else getattr(source, field.name)
        filled[name] = section(**values)
    return TrainOptions(**filled)


def _settings(parsed: Any, base: Preset) -> tuple[Preset, dict[str, int | None]]:
    """The preset with what was changed, and what is left to `build`."""
    decided: dict[str, int | None] = {}

    def changed(source: Any, options: Any) -> Any:
        values = dict(vars(options))
        for name in [name for name in values if _is_decided(type(source), name)]:
            decided[name] = values.pop(name)
        names = {field.name for field in dataclasses.fields(source)}
        return dataclasses.replace(
            source, **{name: x for name, x in values.items() if name in names}
        )

    sections = {
        name: changed(getattr(base.config, name), getattr(parsed, name))
        for name in _SECTIONS
    }
    config = dataclasses.replace(changed(base.config, parsed.run), **sections)
    network = changed(base.network, parsed.network)
    scale = parsed.run.reward_scale
    return Preset(config=config, network=network, reward_scale=scale), decided
