"""An environment that draws itself so that a test can tell what it sees."""

import numpy as np

from nnx_ppo_fn.envs.probes import CountingProbe
from nnx_ppo_fn.wrappers._abstract_wrapper import AbstractWrapper


class Drawn(AbstractWrapper):
    """Paints every state in a shade that tells its observation."""

    env: CountingProbe = CountingProbe(5)

    def reset(self, key):
        return self.env.reset(key)

    def step(self, state, action):
        return self.env.step(state, action)

    def render(self, trajectory, *, height=240, width=320):
        return [
            np.full((height, width, 3), int(state.obs[0]), np.uint8)
            for state in trajectory
        ]
