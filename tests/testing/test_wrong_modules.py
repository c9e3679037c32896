"""Every deliberately wrong module fails, on the law that it breaks."""

import jax.random as jr
import pytest

from nnx_ppo_fn import Dense, Parallel, Sequential
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


# One for each way in which a place is found.
PLACED = {
    "a key consumed twice",
    "statistics written into a Python object",
    "batch statistics in the forward pass",
    "reset by multiplication",
    "a layer that records its output and returns it",
    "an update_statistics that does nothing",
}


@pytest.mark.parametrize(
    "wrong", [w for w in WRONG if w.name in PLACED], ids=lambda wrong: wrong.name
)
def test_names_the_place_in_a_network(wrong, getkey):
    module = wrong.build(SIZE)
    network = Sequential(
        [
            Dense(2, SIZE, key=getkey()),
            Parallel(fine=Dense(SIZE, 1, key=getkey()), wrong=module),
        ]
    )
    x = jr.normal(getkey(), (4, 2))
    with pytest.raises(LawViolation) as caught:
        check_module(network, x, key=getkey(), length=2, laws=[wrong.law])
    assert caught.value.place == ("Sequential[1]", "Parallel.wrong")
    assert caught.value.module == type(module).__name__
    assert caught.value.law == wrong.law
    assert "Sequential[1] > Parallel.wrong" in str(caught.value)


def test_all_are_different():
    assert len({wrong.name for wrong in WRONG}) == len(WRONG)
    assert len({type(wrong.build(SIZE)) for wrong in WRONG}) == len(WRONG)
