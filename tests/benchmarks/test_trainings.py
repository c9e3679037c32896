"""The agents that all ways to train have in common."""

import jax
import numpy as np

from benchmarks.trainings import Trainings
from helpers import assert_close


def test_agents_in_a_row_are_the_chosen_ones_each_by_itself():
    trainings = Trainings(("hidden-cartpole", "mlp"), 1)
    states = trainings.begun(3)
    taken = trainings.in_a_row(states, range(1, 3))()
    iterate = jax.jit(trainings.iterate)
    for row, state in zip((1, 2), taken, strict=True):
        own = jax.tree.map(lambda leaf, row=row: leaf[row], states)
        expected, _ = iterate(own)
        assert_close(state.parameters, expected.parameters, 1e-5)
    first, second = (jax.tree.leaves(state.parameters) for state in taken)
    assert not all(map(np.array_equal, first, second))
