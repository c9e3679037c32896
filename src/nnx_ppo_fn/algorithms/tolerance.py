"""How exactly a replay with unchanged weights must reproduce the rollout."""

import jax
import jax.numpy as jnp
import jax.tree_util as jtu

from .._custom_types import PyTree
from .config import PPOConfig, Scalar


# A step's matrix products have other shapes than the merged ones of a replay, so they
# round otherwise. In float32 this stays below 1e-5 in ordinary recurrent policies, and
# reached 7.5e-5 in one that was confident to the limit; a bfloat16 LSTM was off by
# 3.5e-4 on a CPU.
_FLOAT32_TOLERANCE = 3e-4
_TOLERATED_ROUNDINGS = 4

_TENSOR_FLOAT32_EPS = 2.0**-10
_BFLOAT16_EPS = float(jnp.finfo(jnp.bfloat16).eps)


def replay_tolerance(config: PPOConfig, parameters: PyTree) -> Scalar:
    """The largest relative error of a log-likelihood that training accepts.

    **Arguments:**

    - `config`: its `replay_tolerance` decides, unless it is `None`.
    - `parameters`: the network's trainable arrays, whose dtypes decide then.

    **Returns:**

    The larger of `3e-4` and four times the coarsest relative rounding involved: of a
    parameter's dtype, or of the matrix products of the backend.
    """
    if config.replay_tolerance is not None:
        return config.replay_tolerance
    roundings = [_matmul_eps()]
    for leaf in jtu.tree_leaves(parameters):
        roundings.append(float(jnp.finfo(leaf.dtype).eps))
    return max(_FLOAT32_TOLERANCE, _TOLERATED_ROUNDINGS * max(roundings))


def _matmul_eps() -> float:
    """The relative rounding of a float32 matrix product's inputs."""
    precision = str(getattr(jax.config, "jax_default_matmul_precision", None)).lower()
    if precision in ("float32", "highest", "f32_f32_f32"):
        return 0.0
    if "bf16" in precision or "bfloat16" in precision or precision == "fastest":
        return _BFLOAT16_EPS
    if jax.default_backend() == "cpu":
        return 0.0
    return _TENSOR_FLOAT32_EPS if jax.default_backend() == "gpu" else _BFLOAT16_EPS
