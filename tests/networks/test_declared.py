"""What a module returns is checked against what its annotations declare."""

import importlib
import re
import sys
import textwrap
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import jax.random as jr
import pytest
from jaxtyping import install_import_hook, TypeCheckError

from nnx_ppo_fn import (
    check_module,
    CompositionError,
    Parallel,
    Sequential,
    StatefulModuleOutput,
    Stateless,
    unroll,
)


MODULES = '''
from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Float32

from nnx_ppo_fn import (
    output, RecurrentModule, StatefulModule, StatefulModuleOutput, StatelessModule,
    StochasticModule,
)

Features = Float[Array, "B features"]


class Narrow(StochasticModule[Features, Any]):
    """Declares `size` features, and returns three."""

    size: int = eqx.field(static=True)

    def apply(
        self, draw, x: Features, rollout_extras: Any = None
    ) -> StatefulModuleOutput[Any, Float[Array, "B {self.size}"]]:
        return output(x[:, :3], batch=len(x))


class ForgetsRows(StatelessModule[Features, Any]):
    def __call__(
        self, state, x: Features, rollout_extras: Any = None
    ) -> StatefulModuleOutput[tuple[()], Float[Array, " B"]]:
        return output(x[1:, 0], batch=len(x))


class Bank(StatelessModule[Features, Any]):
    size: int = eqx.field(static=True)

    def __call__(
        self, state, x: Features, rollout_extras: Any = None
    ) -> StatefulModuleOutput[tuple[()], dict[str, Float[Array, "B {self.size}"]]]:
        return output({"a": x, "b": x[:, :3]}, batch=len(x))


class Halves(StatelessModule[Features, Any]):
    def __call__(
        self, state, x: Features, rollout_extras: Any = None
    ) -> StatefulModuleOutput[tuple[()], Float32[Array, "B features"]]:
        return output(x.astype(jnp.bfloat16), batch=len(x))


class Growing(StatefulModule[Any, Features, Features]):
    size: int = eqx.field(static=True)

    def initialize_state(self, keys) -> Any:
        return jnp.zeros((len(keys), self.size))

    def reset_state(self, state: Any) -> Any:
        return jnp.zeros_like(state)

    def __call__(
        self,
        state: Float[Array, "B {self.size}"],
        x: Float[Array, "B {self.size}"],
        rollout_extras: Any = None,
    ) -> StatefulModuleOutput[Float[Array, "B {self.size}"], Features]:
        grown = jnp.concatenate([state, x], axis=-1)
        return output(x, batch=len(x), next_state=grown)


class Unequal(RecurrentModule):
    in_features: int = eqx.field(static=True)

    def fresh_state(self, batch: int) -> Features:
        return jnp.zeros((batch, self.in_features))

    def project(self, x: Features) -> Features:
        return x

    def recur(self, state: Features, projected: Features) -> tuple[Features, Features]:
        return state, projected[:, 1:]


class Either(StatelessModule[Features, Any]):
    def __call__(
        self, state, x: Features, rollout_extras: Any = None
    ) -> (
        StatefulModuleOutput[tuple[()], Float[Array, " B"]]
        | StatefulModuleOutput[tuple[()], Features]
    ):
        return output(x, batch=len(x))


class Foretold(StatelessModule[Features, Any]):
    def __call__(
        self, state, x: Features, rollout_extras: Any = None
    ) -> StatefulModuleOutput[tuple[()], "Later"]:
        return output(x, batch=len(x))


class Bare(StatelessModule[Features, Any]):
    def __call__(
        self, state, x: Features, rollout_extras: Any = None
    ) -> StatefulModuleOutput[tuple[()], Features]:
        return x
'''


def imported(name, folder):
    (folder / f"{name}.py").write_text(textwrap.dedent(MODULES))
    sys.path.insert(0, str(folder))
    try:
        return importlib.import_module(name)
    finally:
        sys.path.remove(str(folder))
        del sys.modules[name]


@pytest.fixture(scope="module")
def checked(tmp_path_factory):
    """A user's modules, with the import hook on."""
    with install_import_hook("a_checked_module", "beartype.beartype"):
        return imported("a_checked_module", tmp_path_factory.mktemp("checked"))


@pytest.fixture(scope="module")
def unchecked(tmp_path_factory):
    """The same modules of a user who did not ask for checks."""
    return imported("an_unchecked_module", tmp_path_factory.mktemp("unchecked"))


X = jnp.ones((5, 6))


def run(module, x=X):
    return jax.eval_shape(
        lambda keys, x: module(module.initialize_state(keys), x),
        jr.split(jr.key(0), len(x)),
        x,
    )


WRONG = {
    "Narrow": (
        lambda m: m.Narrow(4),
        "expected the declared output, Float[Array, 'B {self.size}'], got [5, 3]: the "
        "dimension size 3 does not equal the existing value of {self.size}=4",
    ),
    "ForgetsRows": (
        lambda m: m.ForgetsRows(),
        "expected the declared output, Float[Array, 'B'], got [4]: the size of "
        "dimension B is 4 which does not equal the existing value of 5",
    ),
    "Bank": (
        lambda m: m.Bank(6),
        "expected the declared output, dict[str, Float[Array, 'B {self.size}']], got "
        "['a'] [5, 6], ['b'] [5, 3]",
    ),
    "Halves": (
        lambda m: m.Halves(),
        "expected the declared output, Float32[Array, 'B features'], got [5, 6]: this "
        "array has dtype bfloat16, not float32 as expected by the type hint",
    ),
    "Growing": (
        lambda m: m.Growing(6),
        "expected the declared next_state, Float[Array, 'B {self.size}'], got [5, 12]: "
        "the dimension size 12 does not equal the existing value of {self.size}=6",
    ),
    "Unequal": (
        lambda m: m.Unequal(6),
        "expected Unequal.recur to return tuple[Float[Array, 'B features'], "
        "Float[Array, 'B features']], got (f32[5,6], f32[5,5])",
    ),
    "Bare": (
        lambda m: m.Bare(),
        "expected Bare.__call__ to return StatefulModuleOutput[tuple[()], "
        "Float[Array, 'B features']], got f32[5,6]",
    ),
    "an argument": (
        lambda m: m.Growing(4),
        "expected x of type Float[Array, 'B {self.size}'], got f32[5,6]",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_an_error_names_the_place_and_what_was_declared(name, checked):
    build, problem = WRONG[name]
    network = Sequential(
        [Stateless(jnp.tanh), Parallel(wrong=build(checked), right=Stateless(jnp.tanh))]
    )
    with pytest.raises(CompositionError) as caught:
        run(network)
    assert caught.value.path == ("Sequential[1]", "Parallel.wrong")
    assert caught.value.problem == problem


def test_a_module_by_itself_is_told_by_the_type_checker(checked):
    with pytest.raises(
        TypeCheckError, match=r"a_checked_module\.Narrow\.apply"
    ) as told:
        run(checked.Narrow(4))
    assert WRONG["Narrow"][1] == str(told.value.__cause__)


def test_the_whole_rollout_is_checked_too(checked):
    module = checked.Narrow(4)
    state = module.initialize_state(jr.split(jr.key(0), 5))
    xs = jnp.ones((2, 5, 6))
    with pytest.raises(TypeCheckError, match="Narrow"):
        jax.eval_shape(
            lambda xs: unroll(module, state, xs, jnp.zeros((2, 5), bool)), xs
        )


@pytest.mark.parametrize("name", ["Narrow", "Either", "Foretold"])
def test_what_is_declared_rightly_obeys_the_laws(name, checked):
    module = checked.Narrow(3) if name == "Narrow" else getattr(checked, name)()
    check_module(module, X, key=jr.key(0), length=2, laws=["slicing", "unroll"])


def test_the_batch_of_one_call_does_not_bind_another(checked):
    module = checked.Narrow(3)
    for batch in (5, 2):
        assert run(module, jnp.ones((batch, 6))).output.shape == (batch, 3)


def test_nobody_is_checked_who_did_not_ask(unchecked):
    assert run(unchecked.Narrow(4)).output.shape == (5, 3)
    assert run(unchecked.Growing(6)).next_state.shape == (5, 12)


def test_declared_types_compare_and_replace_type_variables():
    Value = TypeVar("Value")
    declared = StatefulModuleOutput[tuple[()], jax.Array]
    assert declared is StatefulModuleOutput[tuple[()], Value][jax.Array]
    assert repr(declared | None) == ("StatefulModuleOutput[tuple[()], Array] | None")
    value = StatefulModuleOutput((), X, jnp.zeros(5), {})
    assert isinstance(value, declared)
    assert isinstance(value, StatefulModuleOutput[Any, Value])
    assert not isinstance(value, StatefulModuleOutput[tuple[()], int])
    assert not isinstance(X, declared)


def test_an_unknown_report_is_passed_on_whole():
    from nnx_ppo_fn.networks._errors import located

    with pytest.raises(CompositionError, match=re.escape("in Parallel.a (int): odd")):
        with located("Parallel.a", 1):
            raise TypeCheckError("odd")
