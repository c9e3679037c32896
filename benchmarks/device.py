"""The machine: its name, and the best that it can do."""

import platform
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from nnx_ppo_fn.algorithms.spreading import available_cores

from .timing import best, feeding_back, timed


_SECONDS = 0.5
"""For how long the device is asked for its best."""


class Device(NamedTuple):
    """Where everything was measured.

    - `name`, `platform`, `devices`: of the devices that JAX found.
    - `cores`: of the host, as far as this process may use them.
    - `python`, `jax`: versions.
    - `flops_per_second`: of a large float32 matrix product.
    - `bytes_per_second`: read and written while a large array is added to in place.
    """

    name: str
    platform: str
    devices: int
    cores: int
    python: str
    jax: str
    flops_per_second: float
    bytes_per_second: float

    def at_best(self, other: "Device") -> "Device":
        """The same machine with the better limits of two looks at it."""
        return self._replace(
            flops_per_second=max(self.flops_per_second, other.flops_per_second),
            bytes_per_second=max(self.bytes_per_second, other.bytes_per_second),
        )


def describe_device() -> Device:
    """Looks at the machine, and measures its two limits in about a second."""
    device = jax.devices()[0]
    on_host = device.platform == "cpu"
    return Device(
        name=_processor() if on_host else device.device_kind,
        platform=device.platform,
        devices=jax.device_count(),
        cores=available_cores(),
        python=platform.python_version(),
        jax=jax.__version__,
        flops_per_second=_product_rate(2048 if on_host else 8192),
        bytes_per_second=_memory_rate(2**28 if on_host else 2**30),
    )


def _product_rate(size: int) -> float:
    matrix = jnp.full((size, size), 1 / size, jnp.float32)
    multiply = jax.jit(jnp.matmul)
    return (
        2.0 * size**3 / best(timed(lambda: multiply(matrix, matrix)), seconds=_SECONDS)
    )


def _memory_rate(bytes_: int) -> float:
    # In place: memory that is asked for anew costs more than writing to it.
    array = jnp.ones(bytes_ // 4, jnp.float32)
    add = jax.jit(lambda x: (x + np.float32(1), None), donate_argnums=0)
    return 2.0 * bytes_ / best(feeding_back(add, array), seconds=_SECONDS)


def _processor() -> str:
    """The processor's name, which Python does not know on Linux."""
    information = Path("/proc/cpuinfo")
    if information.exists():
        for line in information.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
