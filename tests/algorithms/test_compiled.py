"""How training steps are compiled."""

import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from nnx_ppo_fn import step_compiler_options
from nnx_ppo_fn.algorithms import compiled as compiled_module


@pytest.fixture
def asked_again():
    """Lets the question be asked anew, and forgets what was answered."""
    compiled_module._are_known.cache_clear()
    yield
    compiled_module._are_known.cache_clear()


def test_the_compiler_takes_the_options_and_computes_the_same():
    x = jr.normal(jr.key(0), (4, 3))
    options = step_compiler_options()
    squashed = jax.jit(jnp.tanh, compiler_options=options)(x)
    np.testing.assert_allclose(squashed, np.tanh(np.asarray(x)), rtol=1e-5)


def test_on_a_cpu_that_knows_them_there_are_options():
    assert jax.default_backend() != "cpu" or step_compiler_options()


def test_there_are_none_on_other_devices(monkeypatch):
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    assert step_compiler_options() is None


def test_there_are_none_that_the_compiler_does_not_know(monkeypatch, asked_again):
    def refuse(*arguments, **options):
        raise jax.errors.JaxRuntimeError("No such compile option")

    monkeypatch.setattr(jax, "jit", refuse)
    assert step_compiler_options() is None


def test_an_option_that_no_compiler_knows_is_told_from_others():
    assert not compiled_module._are_known((("xla_cpu_no_such_option", True),))


def test_changing_what_it_gave_changes_nothing_for_others():
    given = step_compiler_options() or pytest.skip("this device has none")
    given["xla_cpu_use_fusion_emitters"] = True
    assert step_compiler_options() != given
