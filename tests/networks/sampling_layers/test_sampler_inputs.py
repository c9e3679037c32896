"""What a sampler reads: refusals that say what to do, and trees of every kind."""

from collections import OrderedDict
from types import MappingProxyType
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import jaxtyping
import numpy as np
import pytest

from nnx_ppo_fn import (
    BernoulliSampler,
    BetaSampler,
    CategoricalSampler,
    CompositionError,
    MultiCategoricalSampler,
    NormalSampler,
    NormalTanhSampler,
)


KEYS = jr.split(jr.key(0), 3)
X = jr.normal(jr.key(1), (3, 4))
MASK = jnp.array([[True, False, True, True]] * 3)
CHOICES = [
    CategoricalSampler(0.1),
    MultiCategoricalSampler(0.1, (2, 2)),
    BernoulliSampler(0.1),
]
NUMBERS = [
    NormalSampler(0.1),
    NormalTanhSampler(0.1),
    BetaSampler(0.1),
    NormalTanhSampler(0.1, log_std=jnp.zeros(2)),
]
of_choices = pytest.mark.parametrize("sampler", CHOICES, ids=lambda s: type(s).__name__)
of_numbers = pytest.mark.parametrize("sampler", NUMBERS, ids=lambda s: type(s).__name__)


@pytest.fixture(autouse=True)
def no_type_checker():
    """As for most users: no type checker speaks before the library does."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


class Named(NamedTuple):
    """Logits and their mask, in the other order."""

    mask: jax.Array
    logits: jax.Array


class Declared(eqx.Module):
    """Logits and their mask."""

    logits: jax.Array
    mask: jax.Array


@of_choices
def test_a_mask_may_stand_in_any_tree_with_names(sampler):
    parts = {"logits": X, "mask": MASK}
    expected = sampler(KEYS, parts).output
    for kind in (OrderedDict, MappingProxyType, lambda x: Named(**x)):
        assert eqx.tree_equal(sampler(KEYS, kind(parts)).output, expected)
    assert eqx.tree_equal(sampler(KEYS, Declared(**parts)).output, expected)
    numpy = {"logits": np.asarray(X), "mask": np.asarray(MASK)}
    assert eqx.tree_equal(sampler(KEYS, numpy).output, expected)


@of_choices
def test_a_mask_is_boolean_and_like_the_logits(sampler):
    for wrong, told in (
        (None, "NoneType"),
        ([True] * 4, "list"),
        (True, "bool"),
        (MASK[0], r"bool \[4\]"),
        (MASK.astype("int32"), r"int32 \[3, 4\]; write mask > 0"),
        (MASK.astype("float32"), r"float32 \[3, 4\]; write mask > 0"),
    ):
        for x in ({"logits": X, "mask": wrong}, Declared(X, wrong)):
            with pytest.raises(CompositionError, match=f"mask .*, got {told}$"):
                sampler(KEYS, x)


@of_choices
def test_logits_are_rows_of_at_least_one(sampler):
    for wrong in (jnp.ones((3, 0)), {"a": X}, (X, X), X[0], Named(MASK, X[:, :0])):
        with pytest.raises(CompositionError, match="expected logits"):
            sampler(KEYS, wrong)


@of_numbers
def test_parameters_are_rows_of_at_least_one_component(sampler):
    for wrong, told in (
        (jnp.ones((3, 0)), r"\[3, 0\]"),
        ({"a": X}, r"\['a'\] \[3, 4\]"),
        ((X, X), r"\[0\] \[3, 4\]"),
        (X[..., None], r"\[3, 4, 1\]"),
        (None, "None"),
    ):
        with pytest.raises(CompositionError, match=rf"expected x \[B, .*, got {told}"):
            sampler(KEYS, wrong)


@pytest.mark.parametrize("masked", [False, True])
def test_logits_of_plus_infinity_leave_nothing_else(masked):
    logits = jnp.array(
        [[jnp.inf, 0, 0, 9], [jnp.inf, 0, jnp.inf, 9], [1e38, 3e38, 0, 0]]
    )
    mask = jnp.array([[True] * 3 + [not masked]] * 3)

    @jax.jit
    @jax.vmap
    def run(logits, mask, key):
        def loss(logits):
            x = {"logits": logits[None], "mask": mask[None]}
            result = CategoricalSampler(1.0)(key[None], x)
            loss = result.output.log_likelihood + result.regularization_loss
            return loss[0], result

        return jax.grad(loss, has_aux=True)(logits)

    gradient, result = run(logits, mask, KEYS)
    np.testing.assert_allclose(
        result.metrics["entropy"][:, 0], [0, np.log(2), 0], atol=1e-6
    )
    np.testing.assert_allclose(
        result.output.log_likelihood[:, 0], [0, -np.log(2), 0], atol=1e-6
    )
    assert result.output.action[0, 0] == 0 and result.output.action[2, 0] == 1
    assert result.output.action[1, 0] in (0, 2)
    assert np.all(np.isfinite(gradient))

    several = MultiCategoricalSampler(1.0, (2, 2))(KEYS, logits)
    np.testing.assert_allclose(
        several.metrics["entropy"],
        [np.log1p(np.exp(-9)) + 9 / (1 + np.exp(9)), 0, np.log(2)],
        rtol=1e-4,
        atol=1e-6,
    )
    assert np.all(np.isfinite(several.output.log_likelihood))


@pytest.mark.parametrize("sampler", CHOICES[:2], ids=lambda s: type(s).__name__)
def test_the_entropy_of_certainty_has_no_sign(sampler):
    x = {"logits": X, "mask": jnp.array([[True, False, False, True]] * 3)}
    x["mask"] = x["mask"].at[:, 3].set(not isinstance(sampler, CategoricalSampler))
    entropy = np.asarray(sampler(KEYS, x).metrics["entropy"])
    assert not np.any(entropy) and not np.any(np.signbit(entropy))


@of_choices
def test_a_recorded_action_that_the_mask_forbids_is_next_to_impossible(sampler):
    """Whatever the kind of choice, so that nothing hides that a mask has changed."""
    recorded = {
        "CategoricalSampler": jnp.array([1] * 3),
        "MultiCategoricalSampler": jnp.array([[1, 0]] * 3),
        "BernoulliSampler": jnp.array([[1, 1, 0, 0]] * 3),
    }[type(sampler).__name__].astype(jnp.int32)

    def likelihood(logits):
        x = {"logits": logits, "mask": MASK}
        return sampler(KEYS, x, recorded).output.log_likelihood

    np.testing.assert_allclose(likelihood(X), [-1e30] * 3, rtol=1e-6)
    assert np.all(np.isfinite(jax.jacrev(likelihood)(X)))


@pytest.mark.parametrize("kind", ["float32", "bfloat16", "float64"])
def test_numbers_are_float32_where_float64_is_enabled(kind):
    with jax.enable_x64(True):
        one = jnp.array(0.25, "float64")
        for sampler in (
            *CHOICES,
            *NUMBERS[:3],
            BetaSampler(one, one),
            NormalSampler(one, one, one, bounds=(np.zeros(2), jnp.ones(2))),
            NormalTanhSampler(one, one, one),
        ):
            result = sampler(KEYS, X.astype(kind))
            integers = sampler in CHOICES
            dtypes = {
                leaf.dtype.name
                for leaf in jax.tree.leaves(
                    (
                        result.output.action,
                        result.rollout_extras,
                    )
                )
            }
            assert dtypes == {"int32" if integers else "float32"}
            rest = (
                result.output.log_likelihood,
                result.regularization_loss,
                result.metrics,
            )
            assert {leaf.dtype.name for leaf in jax.tree.leaves(rest)} == {"float32"}
        held = NormalSampler(one, log_std=np.zeros(4))
        assert held(KEYS, X.astype(kind)).output.action.dtype == jnp.float32
