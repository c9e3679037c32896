import json
import os
import pathlib
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from nnx_ppo_fn.algorithms.spreading import devices_for, for_each_row, padded


@pytest.fixture(scope="module")
def two_devices():
    """What a process with two devices has found."""
    script = pathlib.Path(__file__).with_name("seeds_on_devices.py")
    environment = {**os.environ, "JAX_PLATFORMS": "cpu"}
    environment.pop("XLA_FLAGS", None)
    done = subprocess.run(
        [sys.executable, str(script)],
        capture_output=True,
        text=True,
        env=environment,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_seeds_learn_on_several_devices_what_they_learn_alone(two_devices):
    """Three seeds on two devices: one place is filled up, and nobody sees it."""
    assert len(two_devices["seeds"]) == 3
    for seed in two_devices["seeds"]:
        assert seed["difference"] <= 1e-6 < seed["moved"]


def test_seeds_may_be_trained_within_a_mesh(two_devices):
    """On one of its devices, whatever the mesh is for."""
    assert two_devices["within"] <= 1e-6


def test_results_are_where_other_arrays_are(two_devices):
    """On the first device, and free to go elsewhere, as those of `train_ppo`."""
    assert not any(seed["committed"] for seed in two_devices["seeds"])
    assert [seed["devices"] for seed in two_devices["seeds"]] == [[0]] * 3


def test_rows_are_spread_over_devices(two_devices):
    assert two_devices["doubled"] == [0.0, 2.0, 4.0, 6.0]
    assert two_devices["devices"] == 2
    assert two_devices["few"] == 1


def test_rows_are_padded_to_equal_parts():
    assert padded([1, 2, 3, 4], 3) == [1, 2, 3, 4, 4, 4]
    assert padded([1, 2, 3], 3) == [1, 2, 3]
    assert padded([1, 2, 3], 1) == [1, 2, 3]


def test_the_default_device_is_obeyed():
    with jax.default_device(jax.local_devices()[0]):
        assert list(devices_for(8).devices) == [jax.local_devices()[0]]
    with jax.default_device("cpu"):
        assert devices_for(1).devices[0].platform == "cpu"


@pytest.mark.parametrize("one_by_one", [True, False])
def test_every_row_is_mapped(one_by_one, monkeypatch):
    """One after another and side by side, against numpy."""
    mesh = devices_for(1)
    if not one_by_one:
        monkeypatch.setattr(
            "nnx_ppo_fn.algorithms.spreading._is_cpu", lambda mesh: False
        )
    rows = {"a": jnp.arange(6.0).reshape(3, 2)}

    def function(row, factor):
        return jnp.cumsum(row["a"]) * factor

    mapped = for_each_row(function, rows, jnp.float32(3), mesh=mesh)
    np.testing.assert_allclose(mapped, 3 * np.cumsum(rows["a"], axis=1))
