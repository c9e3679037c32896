"""The command `check`."""

import sys

import jax.numpy as jnp
import pytest

from nnx_ppo_fn.cli import checking, main
from nnx_ppo_fn.envs import make
from nnx_ppo_fn.testing.violation import LAWS


SOURCE = """
import abc
import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
from nnx_ppo_fn import Dense, output, Stateless, StatelessModule

class Whole(StatelessModule):
    def __call__(self, state, x, rollout_extras=None):
        return output(x - x.mean(0, keepdims=True), batch=len(x))

halved = Stateless(lambda x: x / 2)
whole = Whole()
example = jnp.ones((5, 2))
pair = (halved, example)
number = 3

def layer(key):
    return Dense(4, 2, key=key)

def a_key_by_another_name(seed):
    return Dense(4, 2, key=seed)

def layer_and_example(*, key):
    return Dense(2, 2, key=key), example

class Holder:
    inner = halved

    @property
    def broken(self):
        raise RuntimeError("not today")

holder = Holder()
linear = eqx.nn.Linear(4, 2, key=jr.key(0))

class Keras:
    def __call__(self, x):
        return x

keras = Keras()

def failing(key):
    raise KeyError("weights")

class Abstract(StatelessModule):
    @abc.abstractmethod
    def size(self):
        ...

class Raises(StatelessModule):
    def __call__(self, state, x, rollout_extras=None):
        if x.sum() > 0:
            raise RuntimeError
        return output(x, batch=len(x))

raises = Raises()

def sized(observation_size, action_size, *, key):
    return Dense(observation_size, action_size, key=key)
"""
# What an import may do other than to succeed: the file, and what is said of it.
BROKEN = {
    "missing": ("import no_such_package", "No module named 'no_such_package'"),
    "raising": ("\nraise RuntimeError('no')", "RuntimeError: no (mine/raising.py:2)"),
    "syntax": ("x = (", "SyntaxError: '(' was never closed (syntax.py, line 1)"),
    "name": ("from jax import nothing", "ImportError: cannot import name 'nothing'"),
    "exit": ("import sys; sys.exit(5)", "SystemExit: 5 (mine/exit.py:1)"),
}


@pytest.fixture(autouse=True)
def layers(tmp_path, monkeypatch):
    """A folder that one has changed into, with a module in it."""
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "layers.py").write_text(SOURCE)
    for name, (text, _) in BROKEN.items():
        (tmp_path / "mine" / f"{name}.py").write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield
    for name in [name for name in sys.modules if name.split(".")[0] == "mine"]:
        del sys.modules[name]


def test_every_law_is_named_where_all_hold(capsys):
    assert main(["check", "mine.layers:halved", "--features", "3"]) == 0
    *held, verdict = capsys.readouterr().out.splitlines()
    assert held == [f"held  {law}" for law in LAWS]
    assert verdict.endswith(f" obeys all {len(LAWS)} laws")


def test_a_violation_is_printed_as_it_is(capsys):
    assert main(["check", "mine.layers:whole", "--features", "3"]) == 1
    printed = capsys.readouterr()
    assert printed.err.startswith("Whole breaks the law of slicing: ")
    assert "usual cause: " in printed.err
    assert printed.out == "".join(
        f"held  {law}\n" for law in LAWS[: LAWS.index("slicing")]
    )


@pytest.fixture
def checked(monkeypatch):
    """What is given to the check, instead of the check."""
    given = []
    monkeypatch.setattr(checking, "LAWS", LAWS[:1])
    monkeypatch.setattr(checking, "check_structure", lambda *_: None)
    monkeypatch.setattr(
        checking,
        "check_module",
        lambda module, x, *, laws, **_: given.extend((module, x) for _ in laws),
    )
    return given


@pytest.mark.parametrize(
    ("arguments", "kind", "shape"),
    [
        (["mine.layers:pair"], "Stateless", (5, 2)),
        (["mine.layers:Holder.inner", "--features", "3", "2"], "Stateless", (8, 3, 2)),
        (["mine.layers:layer", "--features", "4", "--batch", "6"], "Dense", (6, 4)),
        (["mine.layers:layer_and_example"], "Dense", (5, 2)),
        (["mine.layers:layer", "--env", "cartpole"], "Dense", (8, 4)),
        (["mine.layers:Whole", "--features", "2"], "Whole", (8, 2)),
        (["mine.layers:sized", "--env", "cartpole"], "Dense", (8, 4)),
        (["mine:layers.pair"], "Stateless", (5, 2)),
        (["mine.layers:a_key_by_another_name", "--features", "4"], "Dense", (8, 4)),
    ],
)
def test_objects_of_all_kinds_are_found(arguments, kind, shape, checked):
    assert main(["check", *arguments]) == 0
    ((module, x),) = checked
    assert (type(module).__name__, x.shape) == (kind, shape)


def test_observations_of_an_environment_differ_between_rows(checked):
    assert main(["check", "mine.layers:layer", "--env", "cartpole"]) == 0
    ((_, x),) = checked
    assert x.shape[-1] == make("cartpole").observation_size
    assert len(jnp.unique(x, axis=0)) == len(x)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ([], "which module?"),
        (["mine.layers"], "expected package.module:object"),
        (
            ["mine.layers:halfed"],
            "mine.layers has no 'halfed' (did you mean 'halved'?)",
        ),
        (["mine.layer:halved"], "no module 'mine.layer' (did you mean 'layers'?)"),
        (["json.decoder.foo:X"], "there is no module 'json.decoder.foo'"),
        (["mine..layers:halved"], "expected package.module:object"),
        (["mien.layers:halved"], "there is no module 'mien' (did you mean 'mine'?)"),
        (
            ["mine/layers.py:pair"],
            "a module rather than a file; write mine.layers:pair",
        ),
        ([".mine:pair"], "expected package.module:object"),
        (["mine.layers:pair.nothing"], "mine.layers:pair has no 'nothing'"),
        (
            ["mine.layers:holder.broken"],
            "holder.broken failed: RuntimeError: not today",
        ),
        (["mine.layers:number"], "mine.layers:number is an int; expected a module"),
        (["mine.layers:keras"], "is a Keras; expected a module"),
        (["builtins:len"], "builtins:len failed: TypeError: "),
        (["builtins:id"], "builtins:id makes an int; expected a module"),
        (["mine.layers:linear"], "Linear; wrap it: Stateless(jax.vmap(...))"),
        (["mine.layers:failing"], "failed: KeyError: 'weights' (mine/layers.py:"),
        (["mine.layers:Abstract"], "failed: TypeError: Can't instantiate abstract"),
        (["mine.layers:pair", "--features", "2"], "choose one of the example that"),
        (
            ["mine.layers:layer", "--features", "4", "--env", "cartpole"],
            "choose one of",
        ),
        (["mine.layers:layer", "--features", "9_999", "999_999"], "is too large"),
        (["mine.layers:layer", "--batch", "1e30"], "--batch must be at most"),
        (["mine.layers:Dense"], "needs in_features, out_features, key; write a"),
        (["mine.layers:halved"], "Say --features 4"),
        (["mine.layers:halved", "--env", "cartpol"], "did you mean 'cartpole'"),
        (["mine.layers:layer", "--features", "3"], "expected x [B, 4], got [8, 3]"),
        (["mine.layers:layer", "--features", "4", "--batch", "2"], "at least 4 rows"),
    ],
)
def test_what_cannot_be_checked(arguments, complaint, one_line):
    assert main(["check", *arguments]) == 2
    assert complaint in one_line()


@pytest.mark.parametrize("name", list(BROKEN))
def test_what_cannot_be_imported(name, one_line):
    assert main(["check", f"mine.{name}:halved"]) == 2
    line = one_line()
    assert f"mine.{name} cannot be imported: " in line and BROKEN[name][1] in line


def test_a_module_that_fails_is_told_by_its_line(one_line):
    assert main(["check", "mine.layers:raises", "--features", "3"]) == 1
    line = one_line("error: mine.layers:raises failed: TracerBoolConversionError: ")
    number = 1 + SOURCE[: SOURCE.index("if x.sum()")].count("\n")
    assert line.endswith(f"(mine/layers.py:{number})")
