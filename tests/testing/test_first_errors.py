"""The commonest slips of an author get an error that names them."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import pytest

from law_checks import broken, passes, X
from nnx_ppo_fn import Dense, Sequential, Stateless
from nnx_ppo_fn._keys import normals
from nnx_ppo_fn.networks._errors import CompositionError
from nnx_ppo_fn.networks._routing import Container
from nnx_ppo_fn.networks.types import (
    AnyModule,
    output,
    StatefulModule,
    StatelessModule,
    StochasticModule,
)
from nnx_ppo_fn.testing import check_module, check_structure


class StaticFlag(StochasticModule[Any, Any]):
    """Noise whose flag no `inference_mode` can set."""

    inference: bool = eqx.field(static=True, default=False)

    def apply(self, draw, x, rollout_extras=None):
        return output(x if self.inference else x + normals(draw, 3), batch=len(x))


def test_a_static_inference_flag():
    for module in (StaticFlag(), Sequential([Stateless(jnp.tanh), StaticFlag()])):
        violation = broken(module, "inference")
        assert "declare `inference: bool = False`" in violation.cause
        assert violation.module == "StaticFlag"


class Branching(Container[Any, Any]):
    """Calls a child inside a transformation."""

    inner: AnyModule
    how: str = eqx.field(static=True)

    def children(self):
        return {"inner": self.inner}

    def route(self, call, x):
        if self.how == "cond":
            return jax.lax.cond(jnp.sum(x) > 0, lambda x: call("inner", x), jnp.sin, x)
        _, outputs = jax.lax.scan(lambda c, x: (c, call("inner", x)), 0, x[None])
        return outputs[0]


@pytest.mark.parametrize("how", ["cond", "scan"])
def test_a_child_called_inside_a_transformation(how):
    violation = broken(Branching(Stateless(jnp.tanh), how), "carry")
    assert "calls a child inside cond, scan or vmap" in violation.cause


class Remembering(StatelessModule[Any, Any]):
    """A carry in a base class that has none."""

    def initialize_state(self, keys):
        return jnp.zeros((len(keys), 3))

    def __call__(self, state, x, rollout_extras=None):
        return output(x + state, batch=len(x), next_state=state + x)


def test_a_stateless_module_with_a_carry():
    violation = broken(Remembering(), "structure")
    assert "StatelessModule" in violation.problem
    assert "Derive from StatefulModule" in violation.cause


class RawKeys(StatefulModule[Any, Any, Any]):
    """Keeps its keys as numbers."""

    def initialize_state(self, keys):
        return jax.vmap(jr.key_data)(keys)

    def reset_state(self, state):
        return state

    def __call__(self, state, x, rollout_extras=None):
        halves = jax.vmap(lambda raw: jr.split(jr.wrap_key_data(raw)))(state)
        noise = normals(halves[:, 1], 3)
        raw = jax.vmap(jr.key_data)(halves[:, 0])
        return output(x + noise, batch=len(x), next_state=raw)


def test_raw_keys():
    assert "typed keys" in broken(RawKeys(), "structure").cause


class CallsOtherwise(StochasticModule[Any, Any]):
    """Overrides the method that follows from `advance` and `apply`."""

    def apply(self, draw, x, rollout_extras=None):
        return output(x, batch=len(x))

    def __call__(self, state, x, rollout_extras=None):
        return output(2.0 * x, batch=len(x), next_state=state)


class RoutesOtherwise(Container[Any, Any]):
    inner: AnyModule

    def children(self):
        return {"inner": self.inner}

    def route(self, call, x):
        return call("inner", x)

    def reset_state(self, state):
        return state


@pytest.mark.parametrize(
    ("module", "method"),
    [
        (CallsOtherwise(), "ChainedModule.__call__"),
        (RoutesOtherwise(Stateless(jnp.tanh)), "Container.reset_state"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_final_method_that_is_overridden(module, method):
    violation = broken(Sequential([module]), "structure")
    assert f"overrides {method}" in violation.problem
    assert violation.module == type(module).__name__


SOMEWHERE_ELSE = Stateless(jnp.tanh)


class Homeless(Container[Any, Any]):
    """Makes a child, or takes one that is not its own."""

    fresh: bool = eqx.field(static=True)

    def children(self):
        key = jr.key(0)
        return (Dense(3, 3, key=key) if self.fresh else SOMEWHERE_ELSE,)

    def route(self, call, x):
        return call(0, x)


@pytest.mark.parametrize("fresh", [True, False])
def test_children_are_fields(fresh):
    violation = broken(Sequential([Homeless(fresh)]), "structure")
    assert "children() are fields" in violation.cause
    assert violation.place == ("Sequential[0]",)


class Two(Container[Any, Any]):
    """Two children in a tuple and one beside it, all of them fields."""

    pair: tuple[AnyModule, AnyModule]
    third: dict[str, AnyModule]

    def children(self):
        return (*self.pair, self.third["it"])

    def route(self, call, x):
        return call(2, call(1, call(0, x)))


def test_children_in_tuples_and_mappings_are_fields_too():
    tanh = Stateless(jnp.tanh)
    passes(Two((tanh, tanh), {"it": Stateless(jnp.sin)}), laws=["structure"])


class ChildrenOf(Container[Any, Any]):
    """Whatever it is given is a child."""

    inner: Any

    def children(self):
        return {"inner": self.inner}

    def route(self, call, x):
        return call("inner", x)


@pytest.mark.parametrize(
    "inner", [None, jnp.tanh, Dense], ids=["nothing", "function", "class"]
)
def test_children_are_modules(inner):
    with pytest.raises(
        CompositionError, match=r"ChildrenOf\.inner .*expected a module"
    ):
        ChildrenOf(inner)


def test_a_class_is_not_a_module():
    for check in (check_structure, lambda m, x: check_module(m, x, key=jr.key(0))):
        with pytest.raises(CompositionError, match=r"make one: StaticFlag\(\.\.\.\)"):
            check(StaticFlag, X)
        with pytest.raises(CompositionError, match=r"Stateless\(fn\)"):
            check(jnp.tanh, X)


@pytest.mark.parametrize("key", [0, jnp.zeros(2, jnp.uint32), jr.split(jr.key(0))])
def test_keys_are_typed(key):
    with pytest.raises(TypeError, match="expected one typed key"):
        check_module(Stateless(jnp.tanh), X, key=key)
