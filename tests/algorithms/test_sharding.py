import json
import os
import pathlib
import subprocess
import sys

import jax
import jax.random as jr
import jaxtyping
import numpy as np
import pytest

from helpers import small_config, small_network
from nnx_ppo_fn import new_training_state, on_mesh
from nnx_ppo_fn.envs import make


@pytest.fixture(scope="module")
def four_devices():
    """What a process with four devices has found, by the kind of the mesh's axes."""
    script = pathlib.Path(__file__).with_name("four_devices.py")
    done = subprocess.run(
        [sys.executable, str(script)],
        capture_output=True,
        text=True,
        env={**os.environ, "JAX_PLATFORMS": "cpu"},
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("axes", ["Auto", "Explicit"])
def test_four_devices_do_what_one_does(four_devices, axes):
    """Keys bit for bit, numbers within rounding."""
    found = four_devices[axes]
    assert found["devices"] == 4
    differences = found["differences"]
    assert differences.keys() == {"float32", "key", "int32", "uint32", "bool"}
    assert differences.pop("float32") <= 1e-5
    assert set(differences.values()) == {0.0}


@pytest.mark.parametrize("axes", ["Auto", "Explicit"])
def test_no_experience_is_moved(four_devices, axes):
    """Gradients, statistics and metrics are summed, and each device does its part.

    A rollout has 128 x 8 steps of each of its fields, a minibatch a quarter of them.
    The 32 environments of a device begin anew in two rounds, whenever they do.
    """
    found = four_devices[axes]
    gathered = [sum(sizes) for kind, sizes in found["moved"] if kind != "all-reduce"]
    assert max(gathered, default=0) <= found["devices"]
    assert sum(sum(sizes) for _, sizes in found["moved"]) <= 1.2 * found["parameters"]
    of_one, of_each = found["flops"]
    assert of_each < 0.4 * of_one


@pytest.mark.parametrize("axes", ["Auto", "Explicit"])
def test_gradients_are_summed_once_per_minibatch(four_devices, axes):
    """In the loop over minibatches, and not in the LSTM's over time."""
    assert four_devices[axes]["summing"] == 1


def test_environments_have_to_be_spread_equally():
    env = make("probe:counting")
    network = small_network(jr.key(0), env.observation_size)
    state = new_training_state(env, network, small_config(), key=jr.key(1))
    device = jax.devices()[0]
    three = jax.sharding.Mesh(np.array([device] * 3), ("environments",))
    with pytest.raises(ValueError, match="environments cannot be spread .* 3 devices"):
        on_mesh(state, three)
    crossed = jax.sharding.Mesh(np.array([[device]]), ("a", "b"))
    with pytest.raises(ValueError, match="one axis, .* got the axes a, b"):
        on_mesh(state, crossed)


def test_what_cannot_be_placed_is_named():
    env = make("probe:counting")
    network = small_network(jr.key(0), env.observation_size)
    config, keys = small_config(), jr.split(jr.key(1), 2)
    states = jax.eval_shape(
        jax.vmap(lambda key: new_training_state(env, network, config, key=key)), keys
    )
    mesh = jax.sharding.Mesh(np.array(jax.devices()[:1]), ("environments",))
    with pytest.raises(ValueError, match=r"is_first \[B\], got \[2, 8\]; .* each seed"):
        on_mesh(states, mesh)
    jaxtyping.config.update("jaxtyping_disable", True)
    try:
        for wrong in (2, jax.devices()):
            with pytest.raises(TypeError, match="expected a jax.sharding.Mesh, got"):
                on_mesh(states, wrong)
    finally:
        jaxtyping.config.update("jaxtyping_disable", False)
