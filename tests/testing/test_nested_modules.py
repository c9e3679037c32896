"""What holds for a module by itself holds for it three containers deep."""

import itertools

import jax
import jax.numpy as jnp
import jax.random as jr
import pytest

from nnx_ppo_fn import (
    Concat,
    Dense,
    Map,
    Merge,
    Parallel,
    PPOAdapter,
    SampledAction,
    Sequential,
    Stateless,
)
from nnx_ppo_fn.testing import check_module, LawViolation
from testing.shipped_modules import bank, one_of_each_class
from wrong_modules import WRONG


def row_means(tree):
    leaf = jax.tree.leaves(tree)[0].astype(jnp.float32)
    return jnp.mean(leaf.reshape(len(leaf), -1), axis=-1)


CONTAINERS = itertools.cycle(
    [
        lambda module, x: (Sequential((module, Stateless(lambda value: value))), x),
        lambda module, x: (Parallel(it=module, beside=Stateless(row_means)), x),
        lambda module, x: (Map(it=module), {"it": x}),
        lambda module, x: (Merge(it=Parallel(of_it=module)), x),
    ]
)


def wrapped(module, x):
    """In a container that suits its output, which is in a `Parallel`."""
    keys = jr.split(jr.key(0), len(jax.tree.leaves(x)[0]))
    value = jax.eval_shape(
        lambda keys, x: module(module.initialize_state(keys), x).output, keys, x
    )
    if isinstance(value, SampledAction):
        inner = PPOAdapter(module, Stateless(row_means))
    elif getattr(value, "ndim", 0) == 2:
        inner, x = Concat(it=module), {"it": x}
    else:
        inner, x = next(CONTAINERS)(module, x)
    return Parallel(inner=inner), x


GROUPS = [one_of_each_class()[start::4] for start in range(4)]


@pytest.mark.parametrize("names", GROUPS, ids=lambda names: names[0])
def test_every_shipped_module_obeys_the_laws_three_deep(names, getkey):
    network, x = bank(names, wrapped, key=getkey())
    check_module(network, x, key=getkey(), length=2)


SIZE = 3


@pytest.mark.parametrize("wrong", WRONG, ids=lambda wrong: wrong.name)
def test_every_wrong_module_is_found_three_deep(wrong, getkey):
    module = wrong.build(SIZE)
    place = ("Sequential[0]", "Parallel.body", "Map.wrong")
    x = {
        "fine": jr.normal(getkey(), (4, 2)),
        "wrong": jr.normal(getkey(), (4, 2 * SIZE if wrong.sampler else SIZE)),
    }
    inner = module
    if wrong.sampler:
        inner = PPOAdapter(module, Stateless(row_means))
        place = (*place, "PPOAdapter.action")
    body = Map(fine=Dense(2, 1, key=getkey()), wrong=inner)
    network = Sequential((Parallel(body=body),))
    with pytest.raises(LawViolation) as caught:
        check_module(network, x, key=getkey(), length=2, laws=[wrong.law])
    violation = caught.value
    assert violation.law == wrong.law
    assert violation.place == place
    assert violation.module == type(module).__name__
    assert " > ".join(place) in str(violation)
