"""Graphs of populations obey every law."""

import jax.random as jr

from graphs import twelve_populations
from nnx_ppo_fn.testing import check_module


def test_twelve_populations_obey_the_laws(getkey):
    graph = twelve_populations(getkey())
    x = {"image": jr.normal(getkey(), (5, 2)), "touch": jr.normal(getkey(), (5, 2))}
    check_module(graph, x, key=getkey(), length=4)
