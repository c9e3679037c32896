import dataclasses
from collections import namedtuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import pytest

from helpers import mlp_network, small_config
from nnx_ppo_fn import (
    CompositionError,
    Dense,
    EpisodeWrapper,
    InvalidEnvironmentError,
    new_training_state,
    NormalTanhSampler,
    Parallel,
    PPOAdapter,
    PPOConfig,
    Sequential,
    Stateless,
    train_ppo,
)
from nnx_ppo_fn.algorithms import checks
from nnx_ppo_fn.envs import make


ENV = make("probe:counting")


def attempt(env, network):
    new_training_state(env, network, small_config(), key=jr.key(0))


class Changed(eqx.Module):
    """The counting probe with something changed in what `step` returns."""

    change: str

    def reset(self, key):
        return ENV.reset(key)

    def step(self, state, action):
        after = ENV.step(state, action)
        match self.change:
            case "structure":
                return eqx.tree_at(
                    lambda s: s.info, after, {**after.info, "speed": jnp.float32(1)}
                )
            case "dtype":
                return eqx.tree_at(lambda s: s.obs, after, after.obs.astype(jnp.int32))
            case "shape":
                return eqx.tree_at(lambda s: s.obs, after, jnp.zeros(3))
            case _:
                raise RuntimeError("the simulator exploded")


@pytest.mark.parametrize(
    "change, message",
    [
        ("structure", r"another structure than reset.*only step has .*info\['speed'\]"),
        ("dtype", r"state.obs as int32 \[1\], reset as float32 \[1\]"),
        ("shape", r"state.obs as float32 \[3\], reset as float32 \[1\]"),
        ("error", r"Changed.step fails for the network's action \[\]: the simulator"),
    ],
)
def test_an_environment_that_cannot_be_looped_over_is_told_why(change, message):
    with pytest.raises(InvalidEnvironmentError, match=message):
        attempt(Changed(change), mlp_network(jr.key(0), 1))


def test_a_wrong_observation_size_is_one_clear_error_before_anything_compiles():
    with pytest.raises(CompositionError) as info:
        train_ppo(ENV, mlp_network(jr.key(0), 63), small_config())
    assert "PPOAdapter.action > Sequential[0] (Dense)" in str(info.value)
    assert "[B, 63]" in str(info.value) and "[5, 1]" in str(info.value)


def test_a_network_that_is_no_ppo_network_is_told_what_is_missing():
    with pytest.raises(CompositionError, match="end the network in a PPOAdapter"):
        attempt(ENV, Dense(1, 2, key=jr.key(0)))


def test_rewards_need_a_value_each():
    food, pain = jr.split(jr.key(1))
    network = PPOAdapter(
        mlp_network(jr.key(0), 1).action,
        Parallel(food=Dense(1, 1, key=food), pain=Dense(1, 1, key=pain)),
    )
    with pytest.raises(CompositionError, match="one value per reward"):
        attempt(ENV, network)


def test_an_action_of_the_wrong_kind_is_told_with_its_shape():
    actor, critic = jr.split(jr.key(0))
    network = PPOAdapter(
        Sequential([Dense(1, 6, key=actor), NormalTanhSampler(0.0)]),
        Dense(1, 1, key=critic),
    )

    class Strict(eqx.Module):
        def reset(self, key):
            return ENV.reset(key)

        def step(self, state, action):
            if action.shape != ():
                raise ValueError("expected one integer")
            return ENV.step(state, action)

    with pytest.raises(
        InvalidEnvironmentError, match=r"action \[3\]: expected one integer"
    ):
        attempt(Strict(), network)


def test_the_action_must_be_what_the_environment_takes():
    actor, critic = jr.split(jr.key(0))
    network = PPOAdapter(
        Sequential([Dense(3, 6, key=actor), NormalTanhSampler(0.0)]),
        Dense(3, 1, key=critic),
    )
    with pytest.raises(
        CompositionError, match=r"takes actions of 1 numbers, the network gives \[3\]"
    ):
        attempt(make("pendulum"), network)
    with pytest.raises(CompositionError, match="takes actions of one integer"):
        attempt(make("cartpole"), Sequential([Stateless(first_three), network]))


def first_three(x):
    return x[:, :3]


class Silent:
    """A described environment that takes a tree of actions, or does not say which."""

    observation_size, action_size, max_episode_length = 1, 2, None

    def reset(self, key):
        return ENV.reset(key)

    def step(self, state, action):
        return ENV.step(state, jnp.asarray(jax.tree.leaves(action)[0], jnp.int32))


def test_an_environment_that_does_not_say_is_taken_at_its_step():
    attempt(EpisodeWrapper(Silent(), 5), mlp_network(jr.key(0), 1))
    adapter = mlp_network(jr.key(0), 1)
    several = Parallel(left=adapter.action, right=mlp_network(jr.key(1), 1).action)
    env = Silent()
    env.discrete = True
    attempt(env, PPOAdapter(several, adapter.value))


Loose = namedtuple("Loose", "obs reward done info metrics")


class Returning(eqx.Module):
    """The counting probe, whose reset returns something else."""

    wrong: str

    def reset(self, key):
        state = ENV.reset(key)
        match self.wrong:
            case "dict":
                return {"obs": state.obs}
            case "info" | "metrics":
                fields = {name: getattr(state, name) for name in Loose._fields}
                return Loose(**(fields | {self.wrong: None}))
            case "obs":
                return dataclasses.replace(state, obs=())
            case "batch":
                return jax.vmap(ENV.reset)(jr.split(key, 3))
            case _:
                raise RuntimeError("no simulator")

    def step(self, state, action):
        return ENV.step(state, action)


@pytest.mark.parametrize(
    "env, message",
    [
        (Returning, r"got the class Returning; write Returning\(\.\.\.\)"),
        (Returning("dict"), "fields obs, reward, done, info and metrics, got dict"),
        (Returning("batch"), "reward to be one number.*without a batch axis"),
        (Returning("info"), "Returning's info to be a mapping, got NoneType"),
        (Returning("metrics"), "Returning's metrics to be a mapping, got NoneType"),
        (Returning("obs"), "Returning's observation holds no array"),
        (Returning("error"), r"Returning.reset\(key\) fails: no simulator"),
    ],
)
def test_what_reset_returns_is_looked_at_first(env, message):
    with pytest.raises(InvalidEnvironmentError, match=message):
        attempt(env, mlp_network(jr.key(0), 1))


@pytest.mark.parametrize("key", [jr.PRNGKey(0), jr.split(jr.key(0)), 0])
def test_a_key_of_another_kind_is_refused(key):
    with pytest.raises(TypeError, match="typed key|Key"):
        new_training_state(ENV, mlp_network(jr.key(0), 1), small_config(), key=key)


def test_a_part_of_the_configuration_is_not_the_whole():
    with pytest.raises(TypeError, match="TrainConfig"):
        train_ppo(ENV, mlp_network(jr.key(0), 1), PPOConfig())


def test_what_is_no_environment_is_told_what_one_has():
    with pytest.raises(InvalidEnvironmentError, match=r"reset\(key\).*got str"):
        checks._abstract_reset("cartpole")


def test_one_array_in_two_places_is_reported_as_untied():
    shared = Dense(1, 1, key=jr.key(0))
    adapter = mlp_network(jr.key(0), 1)
    network = PPOAdapter(
        Sequential([shared, *adapter.action.layers]),
        Sequential([shared, adapter.value]),
    )
    with pytest.warns(UserWarning, match=r"action.layers\[0\].kernel.*are one array"):
        attempt(ENV, network)


class Telling(eqx.Module):
    """The counting probe, with more in its `info`."""

    name: str | int = eqx.field(static=True)
    value: object

    def reset(self, key):
        return self._with_more(ENV.reset(key))

    def step(self, state, action):
        return state

    def _with_more(self, state):
        fields = {name: getattr(state, name) for name in Loose._fields}
        return Loose(**(fields | {"info": {self.name: self.value}}))


@pytest.mark.parametrize(
    "name, value, message",
    [
        (1, jnp.zeros(()), "names in Telling's info to be strings, got 1"),
        (
            "truncated",
            jnp.zeros(3, bool),
            r"info\['truncated'\] to be one bool.*got bool \[3\]; give it another name",
        ),
        ("terminated", jnp.zeros((), jnp.int32), r"one bool.*got int32 \[\]"),
        ("time_out", None, "one bool.*got None"),
        ("truncation", {"a": jnp.zeros(())}, r"one bool.*got \['a'\] float32 \[\]"),
        ("final_observation", None, r"like its observation, float32 \[1\], got None"),
        (
            "final_observation",
            jnp.zeros(3),
            r"like its observation, float32 \[1\], got float32 \[3\]; leave it out",
        ),
        ("final_observation", jnp.zeros(1, bool), r"got bool \[1\]"),
    ],
)
def test_what_means_something_in_info_must_mean_it(name, value, message):
    with pytest.raises(InvalidEnvironmentError, match=message) as caught:
        attempt(Telling(name, value), mlp_network(jr.key(0), 1))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "name, value",
    [
        ("truncation", jnp.zeros(())),
        ("time_out", jnp.zeros((), jnp.uint8)),
        ("terminated", jnp.zeros((), bool)),
        ("final_observation", jnp.zeros(1)),
        ("history_first_obs", jnp.zeros(7)),
    ],
)
def test_what_others_write_into_info_is_accepted(name, value):
    checks._abstract_reset(Telling(name, value))


def test_an_environment_that_is_mapped_already_is_told_what_to_pass():
    class Mapped:
        def reset(self, key):
            return jax.vmap(ENV.reset)(key)

        def step(self, state, action):
            return jax.vmap(ENV.step)(state, action)

    message = r"Mapped.reset\(key\) fails: vmap .*; pass .* without its vmap .*wrapper"
    with pytest.raises(InvalidEnvironmentError, match=message):
        attempt(Mapped(), mlp_network(jr.key(0), 1))


def test_the_size_and_the_kind_of_an_action_are_enough_to_compare_it():
    class Terse:
        action_size, discrete = 2, True

        def reset(self, key):
            return ENV.reset(key)

        def step(self, state, action):
            return ENV.step(state, jnp.int32(0))

    actor, critic = jr.split(jr.key(0))
    network = PPOAdapter(
        Sequential([Dense(1, 4, key=actor), NormalTanhSampler(0.0)]),
        Dense(1, 1, key=critic),
    )
    with pytest.raises(CompositionError, match="Terse takes actions of one integer"):
        attempt(Terse(), network)


def test_an_environment_in_a_wrapper_goes_by_its_own_name():
    class Broken:
        def reset(self, key):
            raise RuntimeError("no simulator")

        def step(self, state, action):
            return state

    with pytest.raises(InvalidEnvironmentError, match=r"^Broken.reset\(key\) fails"):
        attempt(EpisodeWrapper(Broken(), 5), mlp_network(jr.key(0), 1))
