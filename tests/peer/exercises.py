"""What can be done with each public name of the original, done on both sides."""

import dataclasses
import functools as ft
import inspect
from typing import get_args, get_origin

import jax
import jax.numpy as jnp
import jax.random as jr
import jax.tree_util as jtu
from nnx_ppo.networks import (
    graph as original_graph,
    recording,
    recurrent as original_recurrent,
    sampling_layers,
    types,
    variational,
)
from nnx_ppo.wrappers import episode_wrapper, reward_scaling_wrapper

from nnx_ppo_fn import (
    ActionSampler,
    AR1VariationalBottleneck,
    envs,
    extract_activations,
    Filter,
    LSTM,
    NonTrainable,
    NormalTanhSampler,
    output,
    partition_trainable,
    PopulationGraphBuilder,
    PPONetworkOutput,
    StatefulModule,
    StatefulModuleOutput,
    VariationalBottleneck,
    with_recording,
)
from nnx_ppo_fn._tree import is_key
from nnx_ppo_fn.networks import (
    recurrent,
    types as our_types,
    utils,
    variational as our_variational,
)
from nnx_ppo_fn.networks.sampling_layers import NormalTanh
from nnx_ppo_fn.wrappers import EpisodeWrapper, RewardScalingWrapper
from peer.original import as_released, KEY, StillRngs
from peer.pairs import numbers, PAIRS


KEYS = jr.split(KEY, 3)


def specifications(tree):
    """Shapes and dtypes of all numbers in a tree."""
    return [
        (leaf.shape, leaf.dtype) for leaf in jtu.tree_leaves(tree) if not is_key(leaf)
    ]


def step_alike(theirs, ours, example, carry=None):
    """Both take a step after a reset and give as much, if wanted in carries too."""
    x = jtu.tree_map(
        lambda leaf: jax.ShapeDtypeStruct((3, *leaf.shape), leaf.dtype), example
    )

    def step(module, born_from, x):
        state = module.reset_state(module.initialize_state(born_from))
        stepped = module(state, x)
        return stepped.output, stepped.next_state

    with as_released():
        expected, their_state = jax.eval_shape(ft.partial(step, theirs, 3), x)
    found, our_state = jax.eval_shape(ft.partial(step, ours, KEYS), x)
    assert specifications(found) == specifications(expected)
    if carry is not None:
        assert specifications(carry(our_state)) == specifications(their_state)


def a_pair(name):
    pair = PAIRS[name]()
    step_alike(pair.theirs, pair.ours, pair.example, pair.carry)


def a_bottleneck():
    theirs = variational.VariationalBottleneck(2, lambda: KEY)
    step_alike(theirs, VariationalBottleneck(2), numbers(4))


def an_ar1_bottleneck():
    theirs = variational.AR1VariationalBottleneck(2, lambda: KEY)
    step_alike(theirs, AR1VariationalBottleneck(2), numbers(4))


def a_sampler():
    theirs = sampling_layers.NormalTanhSampler(lambda: KEY, 0.1)
    step_alike(theirs, NormalTanhSampler(0.1), numbers(4))


def a_sampler_of_ones_own():
    """The family is abstract on both sides, and holds the shipped sampler."""

    class Narrow(ActionSampler):
        entropy_weight: float = 0.0
        inference: bool = False

        def distribution(self, x):
            return NormalTanh(x, jnp.full_like(x, 0.1))

    stepped = Narrow()(KEYS, jnp.zeros((3, 2)))
    assert stepped.output.action.shape == (3, 2)
    for family, sampler in (
        (sampling_layers.ActionSampler, sampling_layers.NormalTanhSampler),
        (ActionSampler, NormalTanhSampler),
    ):
        assert inspect.isabstract(family)
        assert issubclass(sampler, family)


def a_module_of_ones_own():
    class Theirs(types.StatefulModule):
        def __call__(self, state, x, rollout_extras=None):
            return types.StatefulModuleOutput(state, 2 * x, jnp.zeros(len(x)), {})

    class Ours(StatefulModule):
        def initialize_state(self, keys):
            return ()

        def reset_state(self, state):
            return state

        def __call__(self, state, x, rollout_extras=None):
            return output(2 * x, batch=len(x))

    step_alike(Theirs(), Ours(), numbers(2), carry=lambda state: state)


def an_output():
    fields = {"next_state": (), "output": jnp.ones(3), "metrics": {}}
    fields |= {"regularization_loss": jnp.zeros(3), "rollout_extras": None}
    for kind in (types.StatefulModuleOutput, StatefulModuleOutput):
        replaced = dataclasses.replace(kind(**fields), output=jnp.zeros(2))
        assert replaced.output.shape == (2,)


def a_network_output():
    fields = {"actions": jnp.ones((3, 2)), "loglikelihoods": jnp.ones(3)}
    fields |= {"value_estimates": jnp.zeros(3)}
    for kind in (types.PPONetworkOutput, PPONetworkOutput):
        assert specifications(kind(**fields)) == specifications(list(fields.values()))


def a_state_of_its_own_type():
    """Where any tree is a carry there, a module says here which one is its own."""
    assert our_types.State in StatefulModule.__parameters__


def an_lstm_carry():
    carry = LSTM(2, 4, key=KEY).initialize_state(KEYS)
    assert len(carry) == len(get_args(recurrent.LSTMState))
    assert len(get_args(original_recurrent.LSTMCarry)) == 2


def an_ar1_carry():
    state = AR1VariationalBottleneck(2).initialize_state(KEYS)
    assert isinstance(state, our_variational.AR1State)


def a_filter():
    """All three ways to name a part of the input."""
    spec = {"one": "a", "two": ("b", "q"), "three": lambda x: x["a"]}
    assert get_origin(utils.Path) is tuple
    assert dict(Filter(spec).parts).keys() == spec.keys()


def statistics_that_do_not_train():
    parameters_of, rest = partition_trainable(NonTrainable(jnp.ones(2)))
    assert not jtu.tree_leaves(parameters_of)
    assert specifications(rest) == [((2,), jnp.float32)]


def an_environment(theirs, ours, option):
    env = envs.make("pendulum")
    theirs, ours = theirs(env, option), ours(env, option)
    assert theirs.observation_size == ours.observation_size

    def step(env, key):
        return env.step(env.reset(key), jnp.zeros(1)).reward

    assert specifications(jax.eval_shape(ft.partial(step, ours), KEY)) == [
        ((), jnp.float32)
    ]


def a_graph():
    """What the builders of both describe is the same, piece by piece."""

    def described(builder):
        builder.add_input("a", 2, input_from="x", activation=jnp.tanh)
        builder.add_output("b", 3, output_to="y")
        builder.connect("a", "b", delay=2, reciprocal=True)
        return builder.finalize()

    with as_released():
        theirs = original_graph.PopulationGraph(StillRngs(0))
        described(theirs)
    ours = described(PopulationGraphBuilder(key=KEY))
    step_alike(theirs, ours, {"x": numbers(2)}, carry=lambda carry: carry.delays)
    for name, population in ours.populations.items():
        there = theirs.populations[name]
        for field in ("name", "size", "input_from", "output_to"):
            assert getattr(population, field) == getattr(there, field)
    for there, here in zip(
        sorted(theirs.connections, key=lambda one: one.src),
        ours.connections.values(),
        strict=True,
    ):
        assert (here.src, here.dst, here.delay) == (there.src, there.dst, there.delay)


def a_recording():
    """The same activations: in levels by name there, by path here."""
    pair = PAIRS["make_mlp"]()
    x = jr.normal(KEY, (3, *pair.example.shape))
    ours = with_recording(pair.ours)
    found = extract_activations(ours(ours.initialize_state(KEYS), x).metrics)
    with as_released():
        theirs = recording.with_recording(pair.theirs)
        stepped = theirs(theirs.initialize_state(3), x)
        expected = recording.extract_activations(stepped.metrics)
    assert found.keys() == {f"[{name}]" for name in expected}
    for name, value in expected.items():
        assert jnp.allclose(found[f"[{name}]"], value, rtol=1e-6, atol=1e-6)
    assert our_types.ACTIVATION_KEY == types.ACTIVATION_KEY


EXERCISES = {
    name: ft.partial(a_pair, name) for name in PAIRS if name.isidentifier()
} | {
    "VariationalBottleneck": a_bottleneck,
    "AR1VariationalBottleneck": an_ar1_bottleneck,
    "NormalTanhSampler": a_sampler,
    "ActionSampler": a_sampler_of_ones_own,
    "PopulationGraph": a_graph,
    "Population": a_graph,
    "Connection": a_graph,
    "StatefulModule": a_module_of_ones_own,
    "StatefulModuleOutput": an_output,
    "Recorder": a_recording,
    "with_recording": a_recording,
    "extract_activations": a_recording,
    "ACTIVATION_KEY": a_recording,
    "PPONetworkOutput": a_network_output,
    "ModuleState": a_state_of_its_own_type,
    "LSTMCarry": an_lstm_carry,
    "AR1State": an_ar1_carry,
    "FilterSpec": a_filter,
    "NormalizerStatistics": statistics_that_do_not_train,
    "EpisodeWrapper": lambda: an_environment(
        episode_wrapper.EpisodeWrapper, EpisodeWrapper, 10
    ),
    "RewardScalingWrapper": lambda: an_environment(
        reward_scaling_wrapper.RewardScalingWrapper, RewardScalingWrapper, 0.1
    ),
}
"""By name, all but what is not here yet."""
