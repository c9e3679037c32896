"""The arrays of a recording by name, as NumPy has them."""

from collections.abc import Iterator
from typing import Any

import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from .._tree import by_path, is_key


NETWORK = "network"
"""What the network itself is called, whose path is empty."""


def numbers_in(tree: Any, name: str) -> Iterator[tuple[str, NDArray[Any]]]:
    """The leaves of a tree that are numbers or flags, by names such as `x['speed']`.

    Dtypes that NumPy does not know by itself become ones that it knows: `bfloat16` is
    `float32`. Random keys are left out.

    **Arguments:**

    - `tree`: any part of a recording.
    - `name`: what the tree is called.
    """
    for place, leaf in by_path(tree, name).items():
        if not is_key(leaf):
            yield place, _known(np.asarray(leaf))


def _known(array: NDArray[Any]) -> NDArray[Any]:
    """The same numbers in a dtype of NumPy itself."""
    if array.dtype.kind != "V":
        return array
    is_float = jnp.issubdtype(array.dtype, jnp.floating)
    return array.astype(np.float32 if is_float else np.int32)
