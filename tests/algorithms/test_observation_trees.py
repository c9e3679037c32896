"""Training on observations of any kind, in low precision, and with carries of any kind.

An observation in parts, however they are held, trains exactly as the array of all parts
does; what is missing or too much is named.
"""

import collections
import dataclasses
from collections.abc import Mapping
from typing import Any, NamedTuple

import equinox as eqx
import flax.core
import jax
import jax.numpy as jnp
import jax.random as jr
import jax.tree_util as jtu
import numpy as np
import pytest

from helpers import assert_close, small_config
from nnx_ppo_fn import (
    advance_keys,
    CategoricalSampler,
    check_module,
    CompositionError,
    Concat,
    Dense,
    Filter,
    Flattener,
    initial_rollout_state,
    LSTM,
    Map,
    new_training_state,
    Normalizer,
    output,
    partition_trainable,
    ppo_step,
    PPOAdapter,
    replay,
    Sequential,
    StatefulModule,
    Stateless,
    Status,
    unroll_env,
)
from nnx_ppo_fn.algorithms.tolerance import replay_tolerance
from nnx_ppo_fn.envs import State


class Named(NamedTuple):
    speed: Any
    place: Any


@jtu.register_dataclass
@dataclasses.dataclass(frozen=True)
class Registered:
    speed: Any
    place: Any


class Equinox(eqx.Module):
    speed: Any
    place: Any


# Names are not sorted, so that their order shows.
KINDS = {
    "dict": lambda place, speed: {"speed": speed, "place": place},
    "OrderedDict": lambda place, speed: collections.OrderedDict(
        speed=speed, place=place
    ),
    "FrozenDict": lambda place, speed: flax.core.FrozenDict(speed=speed, place=place),
    "tuple": lambda place, speed: (speed, place),
    "NamedTuple": lambda place, speed: Named(speed, place),
    "dataclass": lambda place, speed: Registered(speed, place),
    "eqx.Module": lambda place, speed: Equinox(speed, place),
}


def array(place, speed):
    return jnp.concatenate([place, speed])


@dataclasses.dataclass(frozen=True)
class Drifting:
    """A point in the plane that drifts, and is paid for staying near the middle."""

    form: Any = array
    length: int = 3

    def reset(self, key):
        place = jr.uniform(key, (2,), minval=-1.0, maxval=1.0)
        return self._state(place, jnp.zeros(1), jnp.zeros((), jnp.int32))

    def step(self, state, action):
        place, speed, time = state.data
        speed = 0.5 * speed + 0.2 * (2.0 * action.astype(jnp.float32) - 1.0)
        return self._state(place + speed, speed, time + 1)

    def _state(self, place, speed, time):
        return State.create(
            (place, speed, time),
            self.form(place, speed),
            1 - jnp.sum(jnp.square(place)),
            terminated=False,
            truncated=time >= self.length,
        )


CONFIG = small_config(
    n_envs=4, rollout_length=4, n_epochs=1, total_steps=32, learning_rate=1e-2
)
step = jax.jit(ppo_step, static_argnums=0)


def trained(env, network, iterations=2):
    """The state and the metrics after a few iterations; no fault may have occurred."""
    state = new_training_state(env, network, CONFIG, key=jr.key(1))
    for _ in range(iterations):
        state, metrics = step(env, state, CONFIG)
    assert state.status == Status.HEALTHY
    return state, metrics


def heads(size, key):
    """A policy and a value, each a single layer."""
    keys = jr.split(key)
    policy = Sequential([Dense(size, 2, key=keys[0]), CategoricalSampler(0.01)])
    return PPOAdapter(policy, Dense(size, 1, key=keys[1]))


def behind(*front):
    """A network with the given first layers, and the same weights after them."""
    return Sequential([*front, heads(3, jr.key(2))])


@pytest.fixture(scope="module")
def on_an_array():
    # As many layers as below, since a layer's keys depend on its place.
    same = Stateless(jnp.asarray)
    return trained(Drifting(), behind(same, Normalizer(3), same))


def weights(state):
    return jtu.tree_leaves(state.parameters)


def parts_of(kind):
    if kind == "tuple":
        return Filter({"place": (1,), "speed": (0,)})
    return Filter({"place": "place", "speed": "speed"})


def on_parts(kind):
    standardised = Normalizer({"place": 2, "speed": 1})
    return behind(parts_of(kind), standardised, Flattener())


TRAINED = ("OrderedDict", "tuple", "eqx.Module")
"""One kind of each sort; a training step takes long to compile."""


@pytest.mark.parametrize("kind", TRAINED)
def test_parts_train_as_the_array_of_them_does(kind, on_an_array):
    state, metrics = trained(Drifting(KINDS[kind]), on_parts(kind))
    expected, expected_metrics = on_an_array
    assert_close(weights(state), weights(expected), 1e-6)
    assert_close(metrics, expected_metrics, 1e-5)
    mean = state.network[1].mean
    joined = np.concatenate([mean["place"], mean["speed"]])
    np.testing.assert_allclose(joined, expected.network[1].mean, rtol=1e-6)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in TRAINED])
def test_parts_are_acted_upon_as_the_array_of_them_is(kind):
    outputs = []
    for env, network in (
        (Drifting(), behind(Stateless(jnp.asarray), Normalizer(3), Flattener())),
        (Drifting(KINDS[kind]), on_parts(kind)),
    ):
        start = initial_rollout_state(env, network, jr.split(jr.key(1), 4))
        _, rollout = unroll_env(env, network, start, 5)
        outputs.append(rollout.transitions.network_output)
    assert_close(*outputs, 1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_features_come_in_one_order_inside_jit_and_outside(kind):
    place, speed = jnp.array([[1.0, 2.0]]), jnp.array([[3.0]])
    observation = KINDS[kind](place, speed)
    is_sorted = isinstance(observation, Mapping)
    expected = [[1.0, 2.0, 3.0] if is_sorted else [3.0, 1.0, 2.0]]
    flattened = Flattener()
    inside = jax.jit(lambda x: flattened((), x).output)(observation)
    np.testing.assert_array_equal(flattened((), observation).output, expected)
    np.testing.assert_array_equal(inside, expected)
    if kind != "tuple":
        joined = Concat(speed=Stateless(jnp.asarray), place=Stateless(jnp.asarray))
        nothing = {"place": (), "speed": ()}
        inside = jax.jit(lambda x: joined(nothing, x).output)(observation)
        np.testing.assert_array_equal(
            joined(nothing, observation).output, [[1.0, 2.0, 3.0]]
        )
        np.testing.assert_array_equal(inside, [[1.0, 2.0, 3.0]])


def encoders(*names):
    return {name: Stateless(jnp.asarray) for name in names}


WRONG_KEYS = {
    "missing in Map": (
        lambda: Map(encoders("place", "speed", "touch")),
        r"Sequential\[0\] \(Map\): .*'touch' is missing",
    ),
    "extra in Map": (
        lambda: Map(encoders("place")),
        r"Sequential\[0\] \(Map\): .*'speed' is for no component",
    ),
    "missing in Concat": (
        lambda: Concat(encoders("place", "sped")),
        r"Sequential\[0\] \(Concat\): .*'sped' is missing",
    ),
    "missing in Filter": (
        lambda: Filter({"touch": "touch"}),
        r"Sequential\[0\] \(Filter\): x has no entry 'touch'",
    ),
    "missing in Normalizer": (
        lambda: Normalizer({"place": 2, "speed": 1, "touch": 1}),
        r"Sequential\[0\] \(Normalizer\): .*x\['touch'\] is missing",
    ),
    "extra in Normalizer": (
        lambda: Normalizer({"place": 2}),
        r"Sequential\[0\] \(Normalizer\): .*x\['speed'\] is not known",
    ),
}


@pytest.mark.parametrize("name", WRONG_KEYS)
def test_a_key_that_does_not_fit_is_named_before_training(name):
    build, message = WRONG_KEYS[name]
    with pytest.raises(CompositionError, match=message):
        trained(Drifting(KINDS["dict"]), behind(build(), Flattener()))


# Low precision.


def to_bfloat16(tree):
    return jtu.tree_map(
        lambda leaf: leaf.astype(jnp.bfloat16) if eqx.is_inexact_array(leaf) else leaf,
        tree,
    )


def test_a_bfloat16_network_trains_with_float32_likelihoods_values_and_statistics():
    keys = jr.split(jr.key(3))
    memory = LSTM(3, 4, key=keys[0], trainable_initial_state=True)
    network = Sequential(
        [Normalizer(3), Stateless(to_bfloat16), memory, heads(4, keys[1])]
    )
    parameters, rest = partition_trainable(network)
    network = eqx.combine(to_bfloat16(parameters), rest)
    state, metrics = trained(Drifting(), network)

    dtypes = {leaf.dtype for leaf in jtu.tree_leaves(state.parameters)}
    assert dtypes == {jnp.dtype(jnp.bfloat16)}
    statistics = jtu.tree_leaves(state.network[0].statistics)
    assert {leaf.dtype for leaf in statistics} <= {jnp.dtype(d) for d in ("f4", "u4")}
    _, rollout = jax.eval_shape(
        lambda state: unroll_env(Drifting(), state.network, state.rollout_state, 4),
        state,
    )
    replayed = eqx.filter_eval_shape(replay, state.network, rollout)
    recorded = rollout.transitions.network_output
    for found in (recorded, replayed.output):
        assert found.loglikelihoods.dtype == found.value_estimates.dtype == jnp.float32
    assert replayed.regularization_loss.dtype == jnp.float32
    tolerance = replay_tolerance(CONFIG.ppo, state.parameters)
    assert metrics["replay/log_ratio_max"] < tolerance
    moved = jtu.tree_map(
        lambda old, new: bool(jnp.any(to_bfloat16(old) != new)),
        parameters,
        state.parameters,
    )
    assert any(jtu.tree_leaves(moved))


# Carries.


class Carries(StatefulModule[Any, Any, Any]):
    """Remembers in every way: numbers of rank 0, 1 and 3, a counter, keys."""

    size: int = eqx.field(static=True)

    def initialize_state(self, keys):
        return self._fresh(jax.vmap(lambda key: jr.split(key, 3))(keys))

    def reset_state(self, state):
        return self._fresh(state["chains"])

    def _fresh(self, chains):
        batch = len(chains)
        return {
            "trace": jnp.zeros(batch),
            "features": jnp.zeros((batch, self.size)),
            "history": jnp.zeros((batch, 2, self.size, 1)),
            "count": jnp.zeros(batch, jnp.int32),
            "seen": jnp.zeros((batch, self.size), jnp.bool_),
            "chains": chains,
        }

    def __call__(self, state, x, rollout_extras=None):
        chains, draws = advance_keys(state["chains"])
        noise = jax.vmap(lambda keys: jr.normal(keys[0], (self.size,)))(draws)
        features = 0.5 * state["features"] + x
        value = features + 0.1 * noise
        value = value + jnp.sum(state["history"], axis=(1, 3))
        value = value + state["trace"][:, None]
        value = value / (1.0 + state["count"].astype(jnp.float32))[:, None]
        value = jnp.where(state["seen"], value, -value)
        past = state["history"][:, :1]
        return output(
            value,
            batch=len(x),
            next_state={
                "trace": 0.5 * state["trace"] + jnp.mean(x, axis=-1),
                "features": features,
                "history": jnp.concatenate([x[:, None, :, None], past], axis=1),
                "count": state["count"] + 1,
                "seen": state["seen"] | (x > 0),
                "chains": chains,
            },
        )


def test_carries_of_every_kind_obey_the_laws_and_train(getkey):
    module = Carries(3)
    check_module(module, jr.normal(getkey(), (5, 3)), key=getkey(), length=4)
    _, metrics = trained(Drifting(), behind(Normalizer(3), module))
    assert metrics["replay/log_ratio_max"] < 1e-5
    assert metrics["replay/log_ratio_last"] > 1e-5
