"""A law that a module breaks by itself is found broken three containers deep."""

import jax.random as jr
import pytest

from nnx_ppo_fn import Dense, Map, Parallel, PPOAdapter, Sequential, Stateless
from nnx_ppo_fn.testing import check_module, LawViolation
from testing.shipped_modules import row_means
from wrong_modules import WRONG


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
