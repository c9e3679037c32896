"""Runs every test under strict JAX modes and with runtime type checks on."""

import gc
from pathlib import Path

import jax
import pytest
from jaxtyping import install_import_hook

from kernels import compile_faster


# Before the first import of the package, so that every function in it is checked.
install_import_hook(
    "nnx_ppo_fn",
    "beartype.beartype(conf=beartype.BeartypeConf(strategy=beartype.BeartypeStrategy.On))",
)

jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")
# Tests compile much and run little.
jax.config.update("jax_disable_most_optimizations", True)
compile_faster()


@pytest.fixture
def getkey():
    """A function that hands out a new random key at every call."""
    chain = jax.random.key(20261129)

    def next_key():
        nonlocal chain
        chain, key = jax.random.split(chain)
        return key

    return next_key


@pytest.fixture(autouse=True, scope="module")
def forgotten_programs():
    """Lets go of compiled programs before a process holds more than Linux allows.

    Each is mapped into memory several times, and a process may have 65,530 mappings;
    the compiler crashes at the next one.
    """
    yield
    mappings = Path("/proc/self/maps")
    if mappings.exists() and mappings.read_text().count("\n") > 10_000:
        jax.clear_caches()
        gc.collect()
