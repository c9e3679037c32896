"""What holds for a module by itself holds for it three containers deep.

Those of it that carry or draw something: what containers route is theirs.
"""

import itertools

import jax
import jax.random as jr
import pytest

from nnx_ppo_fn import (
    Concat,
    Map,
    Merge,
    Parallel,
    PPOAdapter,
    SampledAction,
    Sequential,
    Stateless,
)
from nnx_ppo_fn.networks.types import StatelessModule
from nnx_ppo_fn.testing import check_module
from testing.shipped_modules import bank, one_of_each_class, outlines, row_means


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


NAMES = [
    name
    for name in one_of_each_class()
    if not isinstance(outlines()[name], StatelessModule)
]
GROUPS = [NAMES[start::3] for start in range(3)]


@pytest.mark.parametrize("names", GROUPS, ids=lambda names: names[0])
def test_every_shipped_module_obeys_every_law_three_deep(names, getkey):
    network, x = bank(names, wrapped, key=getkey())
    check_module(network, x, key=getkey(), length=2)
