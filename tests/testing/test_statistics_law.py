"""The law of statistics: what extras are for, and that they add up."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import pytest

from law_checks import broken, passes, X
from nnx_ppo_fn import Dense, Normalizer, Sequential
from nnx_ppo_fn.networks._trainable import NonTrainable
from nnx_ppo_fn.networks.types import output, StatefulModule, StatelessModule
from nnx_ppo_fn.testing import check_module, check_structure, LawViolation


class Scaler(StatelessModule[Any, Any]):
    """Divides by the mean of what it has seen, in right and in wrong ways."""

    total: NonTrainable[jax.Array]
    count: NonTrainable[jax.Array]
    parameter: jax.Array
    fault: str = eqx.field(static=True, default="")

    def __init__(self, fault=""):
        self.total = NonTrainable(jnp.zeros(3))
        self.count = NonTrainable(jnp.zeros(()))
        self.parameter = jnp.ones(3)
        self.fault = fault

    def __call__(self, state, x, rollout_extras=None):
        mean = self.total.value / jnp.maximum(self.count.value, 1.0)
        y = self.parameter[None] * (x - mean[None])
        extras = x if rollout_extras is None else rollout_extras
        if self.fault == "unread":
            extras = {"x": x, "y": y} if rollout_extras is None else rollout_extras
        if self.fault == "standardised" and rollout_extras is None:
            extras = x - mean[None]
        return output(y, batch=len(x), rollout_extras=extras)

    def update_statistics(self, rollout_extras):
        if self.fault == "unread":
            rollout_extras = rollout_extras["x"]
        rows = rollout_extras.reshape(-1, 3)
        seen = jnp.all(jnp.isfinite(rows), axis=1)
        if self.fault == "every entry":
            seen = jnp.ones_like(seen)
        if self.fault == "whole steps":
            steps = jnp.any(jnp.isfinite(rollout_extras), axis=(1, 2))
            seen = jnp.repeat(steps, rollout_extras.shape[1])
        rows = jnp.where(seen[:, None], rows, 0.0)
        total = self.total.value + jnp.sum(rows, axis=0)
        samples = jnp.sum(seen, dtype=jnp.float32)
        if self.fault == "counted":
            samples = jnp.float32(len(rows))
        count = self.count.value + samples
        parameter = self.parameter
        if self.fault == "per call":
            total = 0.9 * self.total.value + 0.1 * jnp.sum(rows, axis=0)
        if self.fault == "empty":
            total = self.total.value + len(rows) * jnp.mean(rows, axis=0)
        if self.fault == "parameter":
            parameter = self.parameter + 1.0
        if self.fault == "shape":
            total = total[None]
        return eqx.tree_at(
            lambda scaler: (scaler.total.value, scaler.count.value, scaler.parameter),
            self,
            (total, count, parameter),
        )


def test_statistics_that_add_up():
    passes(Scaler())


@pytest.mark.parametrize(
    ("fault", "text"),
    [
        ("unread", "leaf: .rollout_extras['y']"),
        ("per call", "in two halves"),
        ("empty", "T = 0"),
        ("parameter", "moves a parameter"),
        ("shape", "turns float32[3] into float32[1, 3]"),
        ("every entry", "left out"),
        ("whole steps", "left out"),
        ("counted", "left out"),
        ("standardised", "update_statistics changes"),
    ],
)
def test_statistics(fault, text):
    assert text in str(broken(Scaler(fault), "statistics", laws=["statistics"]))


@pytest.mark.parametrize("seed", [2, 10, 11])
def test_a_mean_between_two_floats(seed):
    # How the mean is shared out between its two parts depends on the order of sums.
    x = 130 + 70 * jr.normal(jr.key(seed), (5, 4))
    check_module(Normalizer(4), x, key=jr.key(seed), laws=["statistics"])


def test_what_is_not_a_number_is_not_a_sample():
    x = X.at[1, 0].set(jnp.nan).at[:, 1].set(jnp.inf).at[2, 2].set(-jnp.inf)
    passes(Normalizer(3), x)


class Restless(StatelessModule[Any, Any]):
    """Records nothing, and changes all the same."""

    total: NonTrainable[jax.Array]
    parameter: jax.Array
    fault: str = eqx.field(static=True)

    def __init__(self, fault):
        self.total = NonTrainable(jnp.zeros(3))
        self.parameter = jnp.ones(3)
        self.fault = fault

    def __call__(self, state, x, rollout_extras=None):
        return output(self.parameter[None] * x + self.total.value[None], batch=len(x))

    def update_statistics(self, rollout_extras):
        total, parameter = self.total.value, self.parameter
        if self.fault == "dtype":
            total = total.astype(jnp.bfloat16)
        if self.fault == "shape":
            total = total[None]
        if self.fault == "structure":
            total = (total, total)
        if self.fault == "parameter":
            parameter = parameter + 1.0
        return eqx.tree_at(
            lambda m: (m.total.value, m.parameter), self, (total, parameter)
        )


@pytest.mark.parametrize("fault", ["dtype", "shape", "structure", "parameter"])
def test_a_module_without_extras(fault):
    broken(Restless(fault), "statistics")


@pytest.mark.parametrize("fault", ["dtype", "shape", "structure"])
def test_what_training_would_stumble_over_is_seen_without_numbers(fault):
    network = Sequential([Dense(3, 3, key=jr.key(0)), Restless(fault)])
    with pytest.raises(LawViolation, match="Restless.* law of statistics"):
        check_structure(network, X)


def test_standardised_samples_in_a_network():
    # Behind other statistics a module may stand; its own must not shape its samples.
    right = Sequential([Normalizer(3), Scaler(), Normalizer(3)])
    check_structure(right, X)
    network = Sequential(
        [Normalizer(3), Dense(3, 3, key=jr.key(0)), Scaler("standardised")]
    )
    with pytest.raises(LawViolation) as caught:
        check_structure(network, X)
    assert caught.value.law == "statistics"
    assert caught.value.place == ("Sequential[2]",)
    assert "Record the input as it comes" in caught.value.cause


class Histogram(StatefulModule[Any, Any, Any]):
    """Counts how often each of four integers came, in right and in wrong ways."""

    counts: NonTrainable[jax.Array]
    fault: str = eqx.field(static=True, default="")

    def initialize_state(self, keys):
        return ()

    def reset_state(self, state):
        return state

    def __call__(self, state, x, rollout_extras=None):
        extras = x if rollout_extras is None else rollout_extras
        counts = self.counts.value[x]
        return output(counts, batch=len(x), rollout_extras=extras)

    def update_statistics(self, rollout_extras):
        entries = rollout_extras.reshape(-1)
        if self.fault == "truncated":
            entries = jnp.nan_to_num(entries.astype(jnp.float32))
        hits = entries[:, None] == jnp.arange(4).astype(entries.dtype)[None]
        counts = self.counts.value + jnp.sum(hits, axis=0, dtype=jnp.float32)
        return eqx.tree_at(lambda m: m.counts.value, self, counts)


def test_integers_arrive_as_floats_where_steps_are_left_out():
    x = jnp.array([0, 3, 1, 1, 2])
    passes(Histogram(NonTrainable(jnp.zeros(4))), x, laws=["statistics"])
    wrong = Histogram(NonTrainable(jnp.zeros(4)), "truncated")
    assert "left out" in broken(wrong, "statistics", x, laws=["statistics"]).problem
