"""The reference pages say what the code says."""

import dataclasses
import importlib
import importlib.util
import inspect
import pkgutil
import re
import textwrap
import tomllib
import types
from typing import TypeVar

import jax
import jax.numpy as jnp
import jax.random as jr
import pytest

import nnx_ppo_fn
from nnx_ppo_fn import (
    EvalConfig,
    evaluate,
    LoggingLevel,
    make_variational_actor_critic,
    new_training_state,
    ppo_step,
    PPOConfig,
    train_ppo,
    TrainConfig,
)
from nnx_ppo_fn.envs import available, families, State
from nnx_ppo_fn.testing import LAWS
from nnx_ppo_fn.wrappers import EpisodeWrapper
from pages import HOME, PAGES, rows


PUBLIC = (
    "nnx_ppo_fn",
    "nnx_ppo_fn.envs",
    "nnx_ppo_fn.wrappers",
    "nnx_ppo_fn.testing",
    "nnx_ppo_fn.presets",
    "nnx_ppo_fn.algorithms.callbacks",
)


def loaded(name):
    """A module of the site's own, which is no part of a package."""
    place = HOME / "docs" / f"{name}.py"
    specification = importlib.util.spec_from_file_location(name, place)
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def hooks():
    """The functions that mkdocs calls."""
    return loaded("hooks")


# The API.


def documented():
    """The objects that the API pages show, by the path under which they do."""
    pages = [page.read_text() for page in (PAGES / "api").glob("*.md")]
    paths = re.findall(r"^::: (\S+)$", "\n".join(pages), re.MULTILINE)
    assert len(paths) == len(set(paths))
    # Like the reference itself, this prefers a file to what is exported by its name.
    found = {path: pkgutil.resolve_name(path) for path in paths}
    assert not [path for path, one in found.items() if inspect.ismodule(one)]
    return found


def public_names(module):
    """What a module exports, or, in one that exports nothing, what it defines."""
    source = inspect.getsource(module)
    for name, value in vars(module).items():
        if name.startswith("_") or isinstance(value, types.ModuleType):
            continue
        exported = f"{name} as {name}" in source
        defined = re.search(rf"^(class|def) {name}\b|^{name}\b.* = ", source, re.M)
        # Type variables only serve the signatures in which they stand.
        if (exported or defined) and not isinstance(value, TypeVar):
            yield name, value


@pytest.mark.parametrize("module", PUBLIC)
def test_every_public_name_is_in_the_api_reference(module):
    shown = documented()
    missing = [
        f"{module}.{name}"
        for name, value in public_names(importlib.import_module(module))
        if f"{module}.{name}" not in shown
        and not any(value is one for one in shown.values())
    ]
    assert not missing


def test_every_class_and_function_that_is_shown_says_what_it_is():
    for path, value in documented().items():
        if inspect.isclass(value) or inspect.isfunction(value):
            assert value.__doc__, path


@pytest.fixture
def shown_class():
    """A function that gives a class as the API reference shows it."""
    griffe = pytest.importorskip("griffe", reason="comes with the extra docs")
    constructors = loaded("constructors").Constructors()

    def shown(text, name="page"):
        with griffe.temporary_visited_module(text, module_name=name) as module:
            (cls,) = module.classes.values()
            constructors.on_class(cls=cls)
            return cls

    return shown


def test_a_class_that_needs_an_absent_extra_is_shown_as_it_is_written(shown_class):
    cls = shown_class("class Adapter:\n    id: str\n", name="of_an_absent_extra")
    assert list(cls.members) == ["id"]


@pytest.mark.parametrize("summary", ["Opens it.\n\n", "Opens it,\nwith care.\n\n", ""])
def test_a_constructor_is_shown_by_its_arguments(summary, shown_class):
    arguments = "**Arguments:**\n\n- `path`: where.\n\n**Raises:**\n\n`OSError`."
    method = f'def __init__(self, path):\n"""{summary}{arguments}"""\n'
    body = textwrap.indent(method.replace('"""', '    """', 1), "    ")
    text = shown_class(f"class File:\n{body}").members["__init__"].docstring.value
    assert text == arguments


# Settings, environments, presets, laws.


@pytest.mark.parametrize("page", sorted(PAGES.glob("*.md")), ids=lambda page: page.stem)
def test_every_mark_of_a_page_is_filled(page, hooks):
    assert "<!--" not in hooks.filled(page.read_text())


def test_every_setting_is_on_the_parameters_page(hooks):
    text = hooks.filled((PAGES / "parameters.md").read_text())
    for owner in hooks.SETTINGS.values():
        for field in dataclasses.fields(owner):
            assert f"| `{field.name}` |" in text
    assert "| `learning_rate` | `float` | `0.0001` | of Adam, at the start. |" in text
    assert '`"bootstrap"` or `"mask"` or `"nnx_ppo"`' in text


def test_every_environment_is_on_its_page(hooks):
    text = hooks.filled((PAGES / "environments.md").read_text())
    for name in available():
        assert f"| `{name}` |" in text
    for family in families():
        assert f"`{family.prefix}<id>`" in text or not family.prefix
    assert "| `hidden-cartpole` | 2 | 2 choices | 500 |" in text


def test_every_preset_is_on_its_page(hooks):
    text = hooks.filled((PAGES / "presets.md").read_text())
    for name in hooks.known_presets():
        assert f"| `{name}` |" in text
    assert "| `learning_rate` | `0.001` | `0.0001` |" in text
    assert "discounting_factor=0.95" in text


def test_every_extra_is_explained():
    project = tomllib.loads((HOME / "pyproject.toml").read_text())["project"]
    explained = [extra.strip("`") for extra, _ in rows(PAGES / "installation.md")]
    # What the benchmarks and the tests need comes with their instructions.
    inner = {"bench", "test"}
    assert set(explained) == set(project["optional-dependencies"]) - inner


def test_every_law_is_explained():
    explained = [law for law, *_ in rows(PAGES / "randomness.md", "what breaks it")]
    assert explained == list(LAWS)


# Metrics.


class Task:
    """An environment with metrics and two rewards, some of whose episodes fail."""

    def reset(self, key):
        return self.at(jr.uniform(key, (2,)))

    def step(self, state, action):
        return self.at(0.9 * state.obs + 0.2 * action)

    def at(self, place):
        rewards = {"near": 1 - place[0], "still": jnp.ones(())}
        return State.create(
            (),
            place,
            rewards,
            terminated=place[0] > 0.95,
            truncated=False,
            metrics={"height": place[0]},
        )


def two_values(network):
    """The network with one value for each of the two rewards."""
    adapter = network[len(network) - 1]
    value = nnx_ppo_fn.Parallel(near=adapter.value, still=adapter.value)
    layers = [*network.layers[:-1], nnx_ppo_fn.PPOAdapter(adapter.action, value)]
    return nnx_ppo_fn.Sequential(layers)


def training(level, *, several_rewards=False):
    env = EpisodeWrapper(Task() if several_rewards else OneReward(), max_len=4)
    network = make_variational_actor_critic(
        2, 1, latent_size=2, encoder_sizes=[4], head_sizes=[4], key=jr.key(0)
    )
    config = TrainConfig(
        PPOConfig(
            n_envs=4,
            rollout_length=5,
            n_epochs=1,
            n_minibatches=1,
            total_steps=20,
            logging_level=level,
        ),
        eval=EvalConfig(n_envs=2, max_episode_length=5),
    )
    return env, network, config


class OneReward(Task):
    """The same with a single reward."""

    def at(self, place):
        state = super().at(place)
        return dataclasses.replace(state, reward=state.reward["near"])


def described_metrics():
    """Names of metrics, with `<...>` for what depends on the network, by level."""
    levels = {}
    for cell, level, about in rows(PAGES / "metrics.md", "Metric"):
        first, *others = re.findall(r"`([^`]+)`", cell)
        assert about
        for name in (first, *(first.rsplit("/", 1)[0] + other for other in others)):
            levels[name] = level.strip("`")
    return levels


def described_as(name, patterns):
    found = [
        pattern
        for pattern in patterns
        if re.fullmatch(re.sub(r"<\w+>", ".+", pattern.replace("^", r"\^")), name)
    ]
    # A name that is written out is not meant by a pattern.
    return name if name in patterns else found[0] if found else None


@pytest.fixture(scope="module")
def metrics():
    """What a training logs, and an evaluation with two rewards."""
    env, network, config = training(LoggingLevel.ALL | LoggingLevel.ROLLOUT_OBS)
    trained = train_ppo(env, network, config).final_metrics
    env, network, _ = training(LoggingLevel.NONE, several_rewards=True)
    evaluated = evaluate(
        env, two_values(network), key=jr.key(1), n_envs=2, max_episode_length=4
    )
    return {*trained, *evaluated}


def test_every_metric_is_described_and_no_other(metrics):
    described = described_metrics()
    found = {name: described_as(name, described) for name in metrics}
    assert not [name for name, row in found.items() if row is None]
    assert set(found.values()) == set(described)


@pytest.mark.parametrize("level", LoggingLevel, ids=lambda level: level.name)
def test_a_level_brings_the_metrics_that_it_is_said_to_bring(level):
    env, network, config = training(level)
    state = jax.eval_shape(
        lambda key: new_training_state(env, network, config, key=key), jr.key(0)
    )
    _, traced = jax.eval_shape(lambda state: ppo_step(env, state, config), state)
    described = described_metrics()
    brought = {described[described_as(name, described)] for name in traced}
    on_the_host = level is LoggingLevel.THROUGHPUT
    assert brought == {"always"} | (set() if on_the_host else {level.name})
