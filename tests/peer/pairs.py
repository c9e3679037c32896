"""Pairs of modules, the original's and ours, with the same weights."""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from flax import nnx
from nnx_ppo.networks import (
    adapter,
    containers,
    delay,
    factories,
    feedforward,
    normalizer,
    recurrent,
    sampling_layers,
    utils,
)

from nnx_ppo_fn import (
    Concat,
    Delay,
    Dense,
    Filter,
    Flattener,
    LSTM,
    make_mlp,
    make_mlp_actor_critic,
    make_mlp_layers,
    Map,
    Merge,
    Normalizer,
    NormalTanhSampler,
    Parallel,
    PPOAdapter,
    Scale,
    Sequential,
    Splitter,
)
from peer.original import (
    as_released,
    compiled,
    KEY,
    StillRngs,
    stirred,
    with_weights_of,
)


class Pair(NamedTuple):
    """Two modules that should be the same, and the shape of what they are given.

    `carry` puts our carry in the original's order.
    """

    theirs: Any
    ours: Any
    example: Any
    carry: Callable[[Any], Any] = lambda carry: carry


def numbers(*shape):
    """An input of one environment."""
    return jax.ShapeDtypeStruct(shape, jnp.float32)


def paired(make_theirs, ours, example, *, carry=None):
    """The pair, once the weights of `make_theirs(rngs)` are in ours."""
    with as_released():
        theirs = compiled(stirred(make_theirs(StillRngs(0))))
    pair = Pair(theirs, with_weights_of(theirs, ours), example)
    return pair if carry is None else pair._replace(carry=carry)


def dense(activation, **options):
    """`Dense` and `Dense`."""
    return paired(
        lambda rngs: feedforward.Dense(3, 4, rngs, activation, **options),
        Dense(3, 4, key=KEY, activation=activation, **options),
        numbers(3),
    )


def lstm(*, use_optimized=True, **options):
    """The original's carry is flax's, `(c, h)`."""
    return paired(
        lambda rngs: recurrent.LSTM(3, 4, rngs, use_optimized=use_optimized, **options),
        LSTM(3, 4, key=KEY, **options),
        numbers(3),
        carry=lambda state: (state[1], state[0]),
    )


def named(theirs, ours, example):
    """Containers of an `LSTM` and a `Dense`, both with the names `b` and `a`."""
    return paired(
        lambda rngs: theirs(
            b=recurrent.LSTM(3, 4, rngs), a=feedforward.Dense(3, 5, rngs)
        ),
        ours(b=LSTM(3, 4, key=KEY), a=Dense(3, 5, key=KEY)),
        example,
        carry=lambda state: {"a": (), "b": (state["b"][1], state["b"][0])},
    )


def merge():
    """A `Merge` of a split and of two heads."""
    return paired(
        lambda rngs: utils.Merge(
            cut=containers.Splitter(left=1, right=1),
            heads=containers.Parallel(head=feedforward.Dense(3, 2, rngs)),
        ),
        Merge(cut=Splitter(left=1, right=1), heads=Parallel(head=Dense(3, 2, key=KEY))),
        numbers(3),
    )


def sequential():
    """A `Sequential` with a carry, statistics and a branch in it."""
    return paired(
        lambda rngs: containers.Sequential(
            [
                normalizer.Normalizer(3),
                recurrent.LSTM(3, 4, rngs),
                feedforward.Dense(4, 4, rngs, nnx.relu),
                utils.Scale(0.5),
                containers.Splitter(first=2, second=1),
            ]
        ),
        Sequential(
            [
                Normalizer(3),
                LSTM(3, 4, key=KEY),
                Dense(4, 4, key=KEY, activation=jax.nn.relu),
                Scale(0.5),
                Splitter(first=2, second=1),
            ]
        ),
        numbers(3),
        carry=lambda state: [(), (state[1][1], state[1][0]), (), (), ()],
    )


def port():
    """A `PPOAdapter` whose policy does not sample."""
    pair = paired(
        lambda rngs: adapter.PPOAdapter(
            containers.Sequential(
                [
                    feedforward.Dense(3, 4, rngs),
                    sampling_layers.NormalTanhSampler(rngs, 0.0),
                ]
            ),
            feedforward.Dense(3, 1, rngs),
        ),
        PPOAdapter(
            Sequential([Dense(3, 4, key=KEY), NormalTanhSampler(0.0)]),
            Dense(3, 1, key=KEY),
        ),
        numbers(3),
    )
    return without_noise(pair)


def mlp_actor_critic():
    """The original's one-call network, without noise."""
    options = {"activation": "tanh", "initializer_scale": 2.0, "std_scale": 0.5}
    options |= {"entropy_weight": 0.0, "min_std": 0.2}
    pair = paired(
        lambda rngs: factories.make_mlp_actor_critic(
            3, 2, [4, 4], [4], rngs, **options
        ),
        make_mlp_actor_critic(3, 2, [4, 4], [4], key=KEY, **options),
        numbers(3),
    )
    return without_noise(pair)


def without_noise(pair):
    """The pair with its samplers switched off.

    The original's draws all the same, for the entropy, which has the weight 0 here.
    """
    pair.theirs.eval()
    return pair._replace(ours=eqx.nn.inference_mode(pair.ours))


def mlp_layers():
    """Layers among others."""
    return paired(
        lambda rngs: containers.Sequential(
            [
                utils.Scale(2.0),
                *factories.make_mlp_layers([3, 4, 4], rngs, nnx.tanh, False),
            ]
        ),
        Sequential(
            [
                Scale(2.0),
                *make_mlp_layers(
                    [3, 4, 4],
                    key=KEY,
                    activation=jnp.tanh,
                    activation_last_layer=False,
                ),
            ]
        ),
        numbers(3),
    )


TREE = {"b": {"p": numbers(2, 2), "q": numbers(1)}, "a": numbers(3)}
PARTS = {"b": numbers(3), "a": numbers(3)}


PAIRS: dict[str, Callable[[], Pair]] = {
    "Dense": lambda: dense(None),
    "Dense with an activation": lambda: dense(jnp.tanh),
    "Dense without a bias": lambda: dense(jax.nn.relu, use_bias=False),
    "LSTM": lstm,
    "LSTM with other functions": lambda: lstm(
        gate_fn=jax.nn.hard_sigmoid, activation_fn=jax.nn.relu
    ),
    "LSTM with a trained start": lambda: lstm(trainable_initial_state=True),
    "LSTM from eight matrices": lambda: lstm(
        use_optimized=False, trainable_initial_state=True
    ),
    "Normalizer": lambda: paired(
        lambda rngs: normalizer.Normalizer(3), Normalizer(3), numbers(3)
    ),
    "Normalizer of a tree": lambda: paired(
        lambda rngs: normalizer.Normalizer({"b": 2, "a": 3}),
        Normalizer({"b": 2, "a": 3}),
        {"b": numbers(2), "a": numbers(3)},
    ),
    "Flattener": lambda: paired(lambda rngs: utils.Flattener(), Flattener(), TREE),
    "Flattener of one level": lambda: paired(
        lambda rngs: utils.Flattener(1), Flattener(1), TREE
    ),
    "Flattener of two levels": lambda: paired(
        lambda rngs: utils.Flattener(preserve_levels=2),
        Flattener(preserve_levels=2),
        {"x": TREE["b"], "y": (numbers(2), [numbers(1), numbers(2, 1)])},
    ),
    "Filter": lambda: paired(
        lambda rngs: utils.Filter(
            {"one": "a", "two": ("b", "q"), "three": lambda x: x["b"]["p"] + 1.0}
        ),
        Filter({"one": "a", "two": ("b", "q"), "three": lambda x: x["b"]["p"] + 1.0}),
        TREE,
    ),
    "Scale": lambda: paired(lambda rngs: utils.Scale(0.1), Scale(0.1), TREE),
    "Splitter": lambda: paired(
        lambda rngs: containers.Splitter(z=2, a=1), Splitter(z=2, a=1), numbers(5)
    ),
    "Delay": lambda: paired(
        lambda rngs: delay.Delay(numbers(2), 1), Delay(numbers(2), 1), numbers(2)
    ),
    "Delay of a tree": lambda: paired(
        lambda rngs: delay.Delay(TREE, 3, initial_value=-1.5),
        Delay(TREE, 3, initial_value=-1.5),
        TREE,
    ),
    "Parallel": lambda: named(containers.Parallel, Parallel, numbers(3)),
    "Concat": lambda: named(containers.Concat, Concat, PARTS),
    "Map": lambda: named(utils.Map, Map, PARTS),
    "Merge": merge,
    "Sequential": sequential,
    "PPOAdapter": port,
    "make_mlp_layers": mlp_layers,
    "make_mlp": lambda: paired(
        lambda rngs: factories.make_mlp([3, 4, 4], rngs),
        make_mlp([3, 4, 4], key=KEY),
        numbers(3),
    ),
    "make_mlp_actor_critic": mlp_actor_critic,
}
"""Every module that draws nothing, by name."""
