"""Every module that the library ships obeys every law."""

import equinox as eqx
import jax.tree_util as jtu
import pytest

import nnx_ppo_fn
from nnx_ppo_fn import StatefulModule
from nnx_ppo_fn.testing import check_module
from testing.shipped_modules import MODULES, outlines


@pytest.mark.parametrize("name", MODULES)
def test_obeys_the_laws(name, getkey):
    module, x = MODULES[name](getkey())
    check_module(module, x, key=getkey(), length=4)


def classes_in(module):
    found = set()

    def note(node):
        if isinstance(node, eqx.Module):
            found.add(type(node))

    jtu.tree_leaves(module, is_leaf=note)
    return found


def test_no_module_is_forgotten():
    shipped = {
        value
        for value in vars(nnx_ppo_fn).values()
        if isinstance(value, type)
        and issubclass(value, StatefulModule)
        and getattr(value, "__final__", False)
    }
    checked = set().union(*map(classes_in, outlines().values()))
    assert shipped
    assert not {kind.__name__ for kind in shipped - checked}
