"""The law of re-weighting: under other weights, extras lock the action alone."""

from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import pytest

from law_checks import broken, passes, X
from nnx_ppo_fn import (
    ActionDistribution,
    ActionSampler,
    CategoricalSampler,
    Dense,
    NormalTanhSampler,
    PPOAdapter,
    PPONetworkOutput,
    SampledAction,
    Sequential,
)
from nnx_ppo_fn._keys import derive, normals
from nnx_ppo_fn.networks.sampling_layers import Categorical
from nnx_ppo_fn.networks.types import output, StochasticModule
from nnx_ppo_fn.testing import check_module, LawViolation


class Policy(StochasticModule[Any, PPONetworkOutput]):
    """A whole PPO network in one module: a Gaussian action and a value."""

    fault: Literal["", "value from extras", "frozen"] = eqx.field(static=True)

    def apply(self, draw, x, rollout_extras=None):
        sample = jax.lax.stop_gradient(x + normals(draw, 3))
        value = jnp.sum(x, axis=-1)
        extras = rollout_extras
        if extras is None:
            extras = {"action": sample}
            if self.fault == "value from extras":
                extras["value"] = value
        elif self.fault == "value from extras":
            value = extras["value"]
        action = extras["action"]
        log = -0.5 * jnp.sum(jnp.square(action - x), axis=-1)
        if self.fault == "frozen":
            log = jax.lax.stop_gradient(log)
        return output(
            PPONetworkOutput(action, log, value), batch=len(x), rollout_extras=extras
        )


def test_reweighting_of_a_network():
    passes(Policy(""))
    smuggled = broken(Policy("value from extras"), "re-weighting")
    assert ".output" in smuggled.leaf
    frozen = broken(Policy("frozen"), "re-weighting")
    assert "gradient of 0" in frozen.problem


class MixtureOfSamplers(StochasticModule[Any, Any]):
    """Several samplers in one output, one of them discrete."""

    def apply(self, draw, x, rollout_extras=None):
        extras = rollout_extras
        if extras is None:
            one, two = derive(draw, "one"), derive(draw, "two")
            extras = {
                "move": jax.lax.stop_gradient(x + normals(one, 3)),
                "press": jax.vmap(lambda key, p: jr.bernoulli(key, p))(
                    two, jax.nn.sigmoid(x[:, 0])
                ),
            }
        log_move = -0.5 * jnp.sum(jnp.square(extras["move"] - x), axis=-1)
        sign = jnp.where(extras["press"], 1.0, -1.0)
        return output(
            {
                "move": SampledAction(extras["move"], log_move),
                "press": SampledAction(
                    extras["press"], jax.nn.log_sigmoid(sign * x[:, 0])
                ),
            },
            batch=len(x),
            rollout_extras=extras,
        )


def test_trees_of_samplers():
    passes(MixtureOfSamplers())


@pytest.mark.parametrize(
    "module, x",
    [
        (CategoricalSampler(0.1), X[:, :1]),
        (
            CategoricalSampler(0.1),
            {"logits": X, "mask": jnp.zeros((5, 3), bool).at[:, 1].set(True)},
        ),
    ],
    ids=["one action", "one allowed action"],
)
def test_where_there_is_no_choice_the_likelihood_may_stand_still(module, x):
    passes(module, x)


class Certain(StochasticModule[Any, Any]):
    """A sampler that knows no likelihood and says 0, always or in the replay."""

    in_replay_only: bool = eqx.field(static=True)

    def apply(self, draw, x, rollout_extras=None):
        sample = jax.lax.stop_gradient(x + normals(draw, 3))
        action = sample if rollout_extras is None else rollout_extras
        log = -0.5 * jnp.sum(jnp.square(action - x), axis=-1)
        if not self.in_replay_only or rollout_extras is not None:
            log = jnp.zeros(len(x), jnp.float32)
        return output(SampledAction(action, log), batch=len(x), rollout_extras=action)


@pytest.mark.parametrize("in_replay_only", [True, False])
def test_a_likelihood_that_nothing_decides(in_replay_only):
    broken(Certain(in_replay_only), "re-weighting", laws=["re-weighting"])


class Gaussian(StochasticModule[Any, Any]):
    """A normal distribution whose log-likelihood can be told to be wrong."""

    log_scale: jax.Array
    fault: str = eqx.field(static=True)

    def __init__(self, fault):
        self.log_scale = jnp.zeros(2)
        self.fault = fault

    def apply(self, draw, x, rollout_extras=None):
        stop = jax.lax.stop_gradient
        mean, raw = jnp.split(x, 2, axis=-1)
        std = (jax.nn.softplus(raw) + 0.1) * jnp.exp(self.log_scale)[None]
        drawn_std = 0.5 * std if self.fault == "colder draw" else std
        sample = stop(mean + drawn_std * normals(draw, 2))
        action = sample if rollout_extras is None else rollout_extras
        if self.fault == "stopped mean":
            mean = stop(mean)
        if self.fault == "stopped std":
            std = stop(std)
        if self.fault == "stopped parameter":
            std = (jax.nn.softplus(raw) + 0.1) * jnp.exp(stop(self.log_scale))[None]
        scored = action[:, ::-1] if self.fault == "another order" else action
        log = -0.5 * jnp.square((scored - mean) / std) - jnp.log(std)
        if self.fault == "no log std":
            log = log + jnp.log(std)
        if self.fault == "sign":
            log = -log
        if self.fault == "constant":
            log = log + 3.0
        log_likelihood = jnp.sum(log, axis=-1)
        return output(
            SampledAction(action, log_likelihood), batch=len(x), rollout_extras=action
        )


PARAMETERS = jr.normal(jr.key(12), (5, 4))


@pytest.mark.parametrize("fault", ["", "constant"])
def test_a_right_likelihood(fault):
    # A constant cancels in every ratio.
    passes(Gaussian(fault), PARAMETERS, laws=["re-weighting"])


@pytest.mark.parametrize("fault", ["stopped mean", "stopped std", "stopped parameter"])
def test_a_gradient_that_is_not_the_likelihoods(fault):
    violation = broken(Gaussian(fault), "re-weighting", PARAMETERS)
    assert "stop_gradient" in violation.cause


@pytest.mark.parametrize(
    "fault", ["sign", "no log std", "another order", "colder draw"]
)
def test_a_likelihood_of_another_distribution(fault):
    violation = broken(Gaussian(fault), "re-weighting", PARAMETERS)
    assert "likelier under another" in violation.problem


class Backwards(ActionDistribution):
    """A categorical distribution with a likelihood of the wrong sign."""

    logits: jax.Array

    def sample(self, keys):
        return Categorical(self.logits).sample(keys)

    def mode(self):
        return Categorical(self.logits).mode()

    def log_likelihood(self, raw):
        return -Categorical(self.logits).log_likelihood(raw)

    def entropy(self, sample):
        return Categorical(self.logits).entropy(sample)


class BackwardsSampler(ActionSampler):
    """Draws from `Backwards`."""

    entropy_weight: float = 0.1
    inference: bool = False

    def distribution(self, x):
        return Backwards(x)


LOGITS = jr.normal(jr.key(12), (5, 4))


@pytest.mark.parametrize("forbidden", [(), (0,), ((0, 1), (1, 0))])
def test_what_an_example_forbids_hides_nothing(forbidden):
    """Minus infinity has no scale that the other logits could be moved by."""
    logits = LOGITS.at[:, jnp.array(forbidden, int)].set(-jnp.inf)
    violation = broken(BackwardsSampler(), "re-weighting", logits)
    assert "likelier under another" in violation.problem
    passes(CategoricalSampler(0.1), logits)


def test_an_example_that_shows_nothing_is_named():
    with pytest.raises(LawViolation, match="no log-likelihood .* finite"):
        check_module(
            NormalTanhSampler(0.1),
            LOGITS.at[:3].set(jnp.inf),
            key=jr.key(0),
            length=2,
            laws=["re-weighting"],
        )


@pytest.mark.parametrize("fault", ["stopped std", "no log std"])
def test_a_wrong_likelihood_inside_a_network(fault):
    keys = jr.split(jr.key(0), 2)
    policy = Sequential([Dense(3, 4, key=keys[0]), Gaussian(fault)])
    network = PPOAdapter(policy, Dense(3, 1, key=keys[1]))
    violation = broken(network, "re-weighting", laws=["re-weighting"])
    assert violation.place == ("PPOAdapter.action", "Sequential[1]")
    assert violation.module == "Gaussian"


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(
    "sampler", [NormalTanhSampler(0.1), CategoricalSampler(0.1)], ids=type
)
def test_no_false_alarm_on_a_right_sampler(sampler, seed):
    for module in (sampler, eqx.nn.inference_mode(sampler)):
        x = 3.0 * jr.normal(jr.key(seed), (5, 6))
        check_module(module, x, key=jr.key(seed), length=2, laws=["re-weighting"])
