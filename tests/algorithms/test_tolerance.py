import jax
import jax.numpy as jnp
import pytest

from nnx_ppo_fn import PPOConfig
from nnx_ppo_fn.algorithms.tolerance import replay_tolerance


@pytest.mark.parametrize(
    "dtypes, expected",
    [
        ([jnp.float32], 3e-4),
        # Half precision keeps 7 or 10 bits: one rounding is 2**-7 or 2**-10.
        ([jnp.float32, jnp.bfloat16], 2.0**-5),
        ([jnp.float16], 2.0**-8),
        ([], 3e-4),
    ],
)
def test_the_coarsest_parameter_decides(dtypes, expected):
    parameters = [jnp.zeros(1, dtype) for dtype in dtypes]
    assert replay_tolerance(PPOConfig(), parameters) == expected


@pytest.mark.parametrize(
    "precision, expected",
    [("highest", 3e-4), ("bfloat16", 2.0**-5), (None, 3e-4)],
)
def test_coarse_matrix_products_are_tolerated(precision, expected):
    with jax.default_matmul_precision(precision):
        assert replay_tolerance(PPOConfig(), jnp.zeros(1)) == expected


def test_what_the_configuration_says_counts():
    config = PPOConfig(replay_tolerance=0.5)
    assert replay_tolerance(config, jnp.zeros(1, jnp.bfloat16)) == 0.5
