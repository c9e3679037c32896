"""Every deliberately wrong module fails, on the law that it breaks."""

import jax.random as jr
import pytest

from nnx_ppo_fn.testing import check_module, LawViolation
from wrong_modules import WRONG


SIZE = 3


def example(wrong, getkey):
    return jr.normal(getkey(), (5, 2 * SIZE if wrong.sampler else SIZE))


@pytest.mark.parametrize("wrong", WRONG, ids=lambda wrong: wrong.name)
def test_fails_on_the_right_law(wrong, getkey):
    module = wrong.build(SIZE)
    with pytest.raises(LawViolation) as caught:
        check_module(module, example(wrong, getkey), key=getkey(), length=4)
    violation = caught.value
    assert violation.law == wrong.law
    assert violation.module == type(module).__name__
    assert violation.place == ()
    for part in (wrong.law, type(module).__name__, wrong.advice):
        assert part in str(violation)


def test_all_are_different():
    assert len({wrong.name for wrong in WRONG}) == len(WRONG)
    assert len({type(wrong.build(SIZE)) for wrong in WRONG}) == len(WRONG)
