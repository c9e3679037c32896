from typing import Any

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from helpers import assert_close, tree_equal
from networks.reporting import Report, stepped
from nnx_ppo_fn._keys import derive
from nnx_ppo_fn.networks._errors import CompositionError
from nnx_ppo_fn.networks._routing import Container
from nnx_ppo_fn.networks.adapter import PPOAdapter
from nnx_ppo_fn.networks.containers import (
    Concat,
    Map,
    Merge,
    Parallel,
    Sequential,
)
from nnx_ppo_fn.networks.feedforward import Dense, Stateless
from nnx_ppo_fn.networks.normalizer import Normalizer
from nnx_ppo_fn.networks.types import output, StatelessModule, StochasticModule
from nnx_ppo_fn.networks.unroll import unroll


class Keys(StochasticModule[Any, Any]):
    def apply(self, draw, x, rollout_extras=None):
        return output(draw, batch=len(x))


class Residual(Container[Any, Any]):
    """The container of an author outside of the package."""

    inner: Any

    def children(self):
        return {"inner": self.inner}

    def route(self, call, x):
        return x + call("inner", x)


def test_sequential_runs_its_layers_in_order():
    network = Sequential([Report(1.0), Stateless(lambda x: 2 * x), Report(3.0)])
    result = stepped(network, jnp.zeros((2, 1)))
    np.testing.assert_array_equal(result.output, [[5], [5]])  # 2 * (0 + 1) + 3
    np.testing.assert_array_equal(result.regularization_loss, [4, 4])
    assert set(result.metrics) == {"0", "2"}
    np.testing.assert_array_equal(result.metrics["2"]["number"], [3, 3])
    assert isinstance(result.rollout_extras, tuple) and len(network) == 3
    np.testing.assert_array_equal(result.rollout_extras[2], [3, 3])
    assert result.rollout_extras[1] is None and result.next_state == ((), (), ())


def test_parallel_runs_its_components_on_one_input():
    network = Parallel(b=Report(1.0), a=Stateless(lambda x: 2 * x))
    result = stepped(network, jnp.ones((2, 1)))
    assert list(result.output) == ["a", "b"]
    np.testing.assert_array_equal(result.output["a"], [[2], [2]])
    np.testing.assert_array_equal(result.output["b"], [[2], [2]])
    assert set(result.metrics) == {"b"}
    same = Parallel({"b": network.components["b"], "a": network.components["a"]})
    assert tree_equal(stepped(same, jnp.ones((2, 1))), result)


def test_each_child_gets_its_own_extras():
    network = Sequential([Parallel(a=Report(1.0), b=Report(2.0)), Stateless(dict)])
    extras = ({"a": jnp.array([7.0]), "b": jnp.array([8.0])}, None)
    result = stepped(network, jnp.zeros((1, 1)), extras=extras)
    assert result.rollout_extras is extras


def test_children_are_born_from_different_keys(getkey):
    key = getkey()
    network = Sequential([Parallel(a=Keys(), b=Keys()), Stateless(dict)])
    born, _ = network.initialize_state(jr.split(key, 3))
    keys = np.concatenate([jr.key_data(born["a"]), jr.key_data(born["b"])])
    assert len(np.unique(keys, axis=0)) == 6
    expected = derive(derive(jr.split(key, 3), "child 0"), "child a")
    np.testing.assert_array_equal(jr.key_data(born["a"]), jr.key_data(expected))


def test_a_container_of_ones_own(getkey):
    network = Residual(Sequential([Dense(2, 2, key=getkey()), Normalizer(2)]))
    xs = jr.normal(getkey(), (5, 3, 2))
    state = network.initialize_state(jr.split(getkey(), 3))
    result = unroll(network, state, xs, jnp.zeros((5, 3), bool))
    inner = xs @ network.inner[0].kernel
    np.testing.assert_allclose(result.output, xs + inner / 10, rtol=1e-5, atol=1e-6)

    updated = network.update_statistics(result.rollout_extras)
    np.testing.assert_allclose(
        updated.inner[1].mean, np.mean(inner, axis=(0, 1)), rtol=1e-4, atol=1e-6
    )
    assert_close(updated.inner[0], network.inner[0], 0)


def test_without_statistics_nothing_is_rebuilt():
    network = Sequential([Report(1.0), Parallel(a=Report(2.0))])
    extras = stepped(network, jnp.zeros((2, 1))).rollout_extras
    assert network.update_statistics(extras) is network


class Twice(Container[Any, Any]):
    inner: Any

    def children(self):
        return (self.inner,)

    def route(self, call, x):
        return call(0, call(0, x))


class Never(Container[Any, Any]):
    inner: Any

    def children(self):
        return {"inner": self.inner, "other": self.inner}

    def route(self, call, x):
        return call("inner", x)


def test_a_child_runs_exactly_once():
    with pytest.raises(CompositionError, match="Twice runs its child 0 twice"):
        stepped(Twice(Report(1.0)), jnp.zeros((2, 1)))
    with pytest.raises(CompositionError, match=r"Never did not run .*\['other'\]"):
        stepped(Never(Report(1.0)), jnp.zeros((2, 1)))


@pytest.mark.parametrize("kind", [Sequential, Parallel, Map, Concat, Merge])
def test_a_container_needs_children(kind):
    with pytest.raises(ValueError, match=f"{kind.__name__} needs at least one"):
        kind([]) if kind is Sequential else kind()


def test_a_function_is_not_a_module():
    with pytest.raises(CompositionError, match=r"Sequential\[1\].*Stateless\(fn\)"):
        Sequential([Report(1.0), jnp.tanh])
    with pytest.raises(CompositionError, match=r"Parallel.a .*got 'Report'"):
        Parallel(a=Report)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (jnp.sum, r"Sequential\[1\] \(Stateless\): expected output \[B, .*got \[\]"),
        (lambda x: {"a": x, "b": x[:1]}, r"output\['b'\] .* = \[2\], got \[1, 3\]"),
        (lambda x: (x, 1.0), r"output\[1\] .*got float"),
    ],
)
def test_an_output_has_a_row_for_each_environment(function, message):
    network = Sequential([Report(1.0), Stateless(function), Stateless(jnp.tanh)])
    with pytest.raises(CompositionError, match=message):
        stepped(network, jnp.ones((2, 3)))


def test_containers_are_trees_that_map():
    networks = jax.vmap(lambda key: Sequential([Dense(2, 3, key=key)]))(
        jr.split(jr.key(0), 4)
    )
    results = jax.vmap(lambda network: stepped(network, jnp.ones((1, 2))).output)(
        networks
    )
    np.testing.assert_allclose(
        results[:, 0], jnp.sum(networks[0].kernel, axis=1), rtol=1e-5
    )


class Calls(Container[Any, Any]):
    """Calls a child by whatever name it is told."""

    inner: Any
    name: str

    def children(self):
        return {"inner": self.inner}

    def route(self, call, x):
        return call(self.name, x)


def test_a_child_that_is_not_there_is_told_with_those_that_are():
    container = Calls(Stateless(jnp.tanh), "iner")
    with pytest.raises(CompositionError, match="calls a child 'iner'.*are 'inner'"):
        container({"inner": ()}, jnp.ones((4, 2)))


class Bare(StochasticModule[Any, Any]):
    """Forgets to wrap its value."""

    def apply(self, draw, x, rollout_extras=None):
        return x


class BareStep(StatelessModule[Any, Any]):
    """Forgets to wrap its value."""

    def __call__(self, state, x, rollout_extras=None):
        return x


@pytest.mark.parametrize(
    "module, method", [(Bare(), "apply"), (BareStep(), "__call__")]
)
def test_a_bare_value_is_told_how_to_be_returned(module, method):
    network = Sequential([module])
    state = network.initialize_state(jr.split(jr.key(0), 4))
    with pytest.raises(
        CompositionError, match=rf"Sequential\[0\].*expected {method} to return output"
    ):
        network(state, jnp.ones((4, 2)))


@pytest.mark.parametrize(
    "build, message",
    [
        (lambda: Sequential(Dense(2, 2, key=jr.key(0))), r"list of modules, got Dense"),
        (lambda: Sequential(jnp.tanh), r"list of modules, got"),
        (
            lambda: Parallel([Dense(2, 2, key=jr.key(0))]),
            r"mapping of modules, got list",
        ),
        (
            lambda: Parallel(Dense(2, 2, key=jr.key(0))),
            r"mapping of modules, got Dense",
        ),
    ],
)
def test_what_holds_no_modules_is_refused(build, message):
    with pytest.raises(CompositionError, match=message):
        build()


@pytest.mark.parametrize(
    "port", [jnp.tanh, None, Dense], ids=["function", "nothing", "class"]
)
def test_both_ports_of_an_adapter_are_modules(port):
    module = Dense(2, 2, key=jr.key(0))
    with pytest.raises(
        CompositionError, match=r"PPOAdapter\.action.*expected a module"
    ):
        PPOAdapter(port, module)
    with pytest.raises(CompositionError, match=r"PPOAdapter\.value.*expected a module"):
        PPOAdapter(module, port)


class Routes(Container[Any, Any]):
    """Routes as it is told to."""

    inner: Any
    function: Any

    def children(self):
        return {"inner": self.inner}

    def route(self, call, x):
        return self.function(call, x)


def test_route_returns_a_value():
    network = Routes(Report(1.0), lambda call, x: output(call("inner", x), batch=2))
    with pytest.raises(CompositionError, match=r"Routes\.route to return a value"):
        stepped(network, jnp.ones((2, 1)))


def test_an_error_in_a_route_says_which_axes_it_sees():
    network = Routes(Report(1.0), lambda call, x: call("inner", x).reshape(2, 1) + x)
    xs, is_first = jnp.ones((3, 2, 1)), jnp.zeros((3, 2), bool)
    state = network.initialize_state(jr.split(jr.key(0), 2))
    network(state, xs[0])
    with pytest.raises(TypeError) as caught:
        unroll(network, state, xs, is_first)
    assert "in Routes.route, which sees [T, B, ...] here" in caught.value.__notes__[0]
