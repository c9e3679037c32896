"""How tests of the laws ask for a violation, or for none."""

import jax.random as jr
import pytest

from nnx_ppo_fn.testing import check_module, LawViolation


X = jr.normal(jr.key(11), (5, 3))


def broken(module, law, x=X, **settings):
    """The violation that `check_module` raises, which must be of `law`."""
    with pytest.raises(LawViolation) as caught:
        check_module(module, x, key=jr.key(0), length=4, **settings)
    assert caught.value.law == law
    return caught.value


def passes(module, x=X, **settings):
    check_module(module, x, key=jr.key(0), length=4, **settings)
