import sys

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from nnx_ppo_fn import Recording, SampledAction


xarray = pytest.importorskip("xarray")


def recording():
    """Two episodes in 5 steps, of 3 steps and of all, with all sorts of arrays."""
    values = np.random.default_rng(0)
    floats = lambda *shape: values.normal(size=(5, 2, *shape)).astype(np.float32)
    ongoing = jnp.arange(5)[:, None] < jnp.asarray([[3, 5]])
    return Recording(
        activations={
            "": SampledAction(jnp.asarray(floats(3)), jnp.asarray(floats())),
            ".M1->BG": jnp.asarray(floats(4)),
            "[0]": jnp.asarray(floats(2, 3)),
            "[1]": jnp.asarray(floats(2)).astype(jnp.bfloat16),
            "[2]": {
                "keys": jr.split(jr.key(0), (5, 2)),
                "count": jnp.ones((5, 2), int),
            },
        },
        observations={"speed": jnp.asarray(floats(1)), "near": ongoing},
        actions=jnp.asarray(values.integers(0, 9, (5, 2))),
        rewards=jnp.asarray(floats()),
        ongoing=ongoing,
        done=jnp.arange(5)[:, None] == jnp.asarray([[2, 9]]),
        truncated=jnp.zeros((5, 2), bool),
        state_data=None,
    )


def test_every_array_is_a_variable_under_its_name():
    data = recording().to_xarray()
    assert isinstance(data, xarray.Dataset)
    given = recording()
    expected = {
        "network.action": given.activations[""].action,
        "network.log_likelihood": given.activations[""].log_likelihood,
        ".M1->BG": given.activations[".M1->BG"],
        "[0]": given.activations["[0]"],
        "[1]": given.activations["[1]"].astype(jnp.float32),
        "[2]['count']": given.activations["[2]"]["count"],
        "observations['speed']": given.observations["speed"],
        "observations['near']": given.observations["near"],
        "actions": given.actions,
        "rewards": given.rewards,
        "ongoing": given.ongoing,
        "done": given.done,
        "truncated": given.truncated,
    }
    assert set(data.data_vars) == set(expected)
    for name, array in expected.items():
        assert data[name].dtype == array.dtype
        np.testing.assert_array_equal(data[name].values, array)
        assert data[name].attrs["description"]


def test_axes_have_names():
    data = recording().to_xarray()
    assert data["rewards"].dims == ("step", "environment")
    assert data[".M1->BG"].dims == ("step", "environment", ".M1->BG_feature")
    axes = ("[0]_feature_0", "[0]_feature_1")
    assert data["[0]"].dims == ("step", "environment", *axes)
    assert data["step"].values.tolist() == [0, 1, 2, 3, 4]
    assert data["step"].attrs["units"] == "steps"
    assert data["environment"].values.tolist() == [0, 1]


def test_steps_after_the_end_can_be_masked():
    given = recording()
    data = given.to_xarray()
    masked = data.where(data.ongoing)
    assert np.isnan(masked["rewards"].values[3:, 0]).all()
    assert masked["rewards"].count() == given.lifespans.sum() == 8
    np.testing.assert_allclose(
        masked["rewards"].sum(),
        np.asarray(given.rewards, np.float64)[np.asarray(given.ongoing)].sum(),
        rtol=1e-6,
    )
    of_second = masked["rewards"].sel(environment=1).values
    np.testing.assert_array_equal(of_second, given.rewards[:, 1])


def test_what_is_missing_is_said(monkeypatch):
    monkeypatch.setitem(sys.modules, "xarray", None)
    with pytest.raises(ImportError, match=r'pip install "nnx_ppo_fn\[xarray\]"'):
        recording().to_xarray()


def test_state_data_is_a_variable():
    given = eqx.tree_at(
        lambda one: one.state_data,
        recording(),
        {"velocity": jnp.ones((5, 2, 2))},
        is_leaf=lambda node: node is None,
    )
    data = given.to_xarray()
    name = "state_data['velocity']"
    assert data[name].dims == ("step", "environment", f"{name}_feature")
