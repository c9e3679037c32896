"""The keys of a training run, all from one."""

from typing import final, NamedTuple

from jaxtyping import Array, Key

from .._keys import derive


@final
class RunKeys(NamedTuple):
    """A key for every purpose, in the same way for one seed and for several.

    - `initial_weights`: for whoever builds a network from a seed.
    - `training`: environments, carries and shuffling.
    - `evaluation`, `video`: of all evaluations and videos, which training does not
      notice.
    """

    initial_weights: Key[Array, "*runs"]
    training: Key[Array, "*runs"]
    evaluation: Key[Array, "*runs"]
    video: Key[Array, "*runs"]

    @staticmethod
    def of(root: Key[Array, "*runs"]) -> "RunKeys":
        """The keys that come from `root`, which must not be drawn from."""
        return RunKeys(
            initial_weights=derive(root, "initial weights"),
            training=derive(root, "training"),
            evaluation=derive(root, "evaluation"),
            video=derive(root, "video"),
        )
