"""One module for each way to break a law that `wrong_modules` leaves out, and modules
that come close to the edge without crossing it."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import pytest

from law_checks import broken, passes, X
from nnx_ppo_fn import Dense, Sequential, Stateless
from nnx_ppo_fn._keys import advance_keys, derive, EpisodeKeys, Held, normals
from nnx_ppo_fn.networks.types import (
    ChainedModule,
    output,
    StatefulModule,
    StatelessModule,
    StochasticModule,
    UnrolledModule,
)
from nnx_ppo_fn.testing import check_module, LAWS


class Integrator(UnrolledModule[Any, Any, Any]):
    """A leaky integrator with an unroll of its own, which can be told to be wrong."""

    fault: str = eqx.field(static=True, default="")

    def initialize_state(self, keys):
        start = 1.0 if self.fault == "born unlike reset" else 0.0
        return jnp.full((len(keys), 3), start, jnp.float32)

    def reset_state(self, state):
        return jnp.zeros_like(state)

    def __call__(self, state, x, rollout_extras=None):
        next_state = 0.5 * state + x
        return output(next_state, batch=len(x), next_state=next_state)

    def unroll(self, state, xs, is_first, rollout_extras=None):
        if self.fault == "first step not reset":
            is_first = is_first.at[0].set(False)

        def step(state, inputs):
            x, first = inputs
            cleared = jnp.where(first[:, None], jnp.zeros_like(state), state)
            state = state if self.fault == "reset after the step" else cleared
            if self.fault == "truncated gradient":
                state = jax.lax.stop_gradient(state)
            stepped = self(state, x)
            kept = stepped.next_state
            if self.fault == "reset after the step":
                kept = jnp.where(first[:, None], jnp.zeros_like(kept), kept)
            return kept, stepped.output

        final, outputs = jax.lax.scan(step, state, (xs, is_first))
        zeros = jnp.zeros(is_first.shape, jnp.float32)
        made = output(outputs, batch=1, next_state=final)
        return eqx.tree_at(lambda made: made.regularization_loss, made, zeros)


def test_an_integrator_obeys():
    passes(Integrator())


@pytest.mark.parametrize("fault", ["first step not reset", "reset after the step"])
def test_unroll(fault):
    violation = broken(Integrator(fault), "unroll")
    assert "unroll differs from the step-by-step loop" in str(violation)


def test_gradient_through_time():
    violation = broken(Integrator("truncated gradient"), "gradient")
    assert "stop_gradient" in violation.cause


def test_born_unlike_reset():
    violation = broken(Integrator("born unlike reset"), "reset")
    assert violation.leaf == "state"
    assert "initialize_state" in violation.problem


class SafeRoot(StatelessModule[Any, Any]):
    """The root of what is positive, and the infinite slope of a root at 0."""

    def __call__(self, state, x, rollout_extras=None):
        positive = jnp.maximum(x, 0.0)
        root = jnp.where(positive > 0, jnp.sqrt(positive), 0.0)
        return output(root, batch=len(x))


def test_gradient_must_be_finite():
    assert "not finite" in str(broken(SafeRoot(), "gradient"))


class Shaped(StatefulModule[Any, Any, Any]):
    """Returns what it is told to."""

    fault: str = eqx.field(static=True)

    def initialize_state(self, keys):
        if self.fault == "carry":
            return jnp.zeros(3)
        return jnp.zeros((len(keys), 3), jnp.float32)

    def reset_state(self, state):
        return {"h": state} if self.fault == "reset" else jnp.zeros_like(state)

    def __call__(self, state, x, rollout_extras=None):
        made = output(x, batch=len(x), next_state=x)
        if self.fault == "value":
            return x
        if self.fault == "loss":
            loss = jnp.float32(0.0)
            return eqx.tree_at(lambda made: made.regularization_loss, made, loss)
        if self.fault == "metrics":
            return output(x, batch=len(x), next_state=x, metrics={"m": jnp.mean(x)})
        if self.fault == "output":
            return output(x.sum(axis=0), batch=len(x), next_state=x)
        if self.fault == "type":
            return output(x, batch=len(x), next_state=x.astype(jnp.bfloat16))
        if self.fault == "tree":
            return output(x, batch=len(x), next_state=(x, x))
        if self.fault == "weak":
            return output(x, batch=len(x), next_state=jnp.full(x.shape, 1.0))
        return made


@pytest.mark.parametrize(
    ("fault", "law", "text"),
    [
        ("carry", "structure", "leading axis B"),
        ("value", "structure", "StatefulModuleOutput"),
        ("loss", "structure", "one number per environment"),
        ("metrics", "structure", ".metrics['m']"),
        ("output", "structure", "leaf: .output"),
        ("type", "carry", "takes float32[5, 3] and returns bfloat16[5, 3]"),
        ("weak", "carry", "returns float32[5, 3] (weakly typed)"),
        ("tree", "carry", "another structure"),
        ("reset", "reset", "another structure"),
    ],
)
def test_shapes(fault, law, text):
    assert text in str(broken(Shaped(fault), law))


class RandomStart(StatefulModule[Any, Any, Any]):
    """Starts at random, from the first environment's key where that is asked for."""

    shared: bool = eqx.field(static=True)

    def initialize_state(self, keys):
        start = jr.normal(keys[0], (len(keys), 3)) if self.shared else normals(keys, 3)
        return start

    def reset_state(self, state):
        return jnp.zeros_like(state)

    def __call__(self, state, x, rollout_extras=None):
        return output(x + state, batch=len(x), next_state=state)


def test_birth():
    assert "keys[0]" in broken(RandomStart(shared=True), "birth").cause
    # What a key decides may differ between birth and reset.
    passes(RandomStart(shared=False))


class Dropout(ChainedModule[Any, Any, Any, Any]):
    """A mask that holds for an episode."""

    fault: str = eqx.field(static=True, default="")
    inference: bool = False

    def initialize_state(self, keys):
        return EpisodeKeys.of(keys)

    def reset_state(self, state):
        fresh = EpisodeKeys.of(state.chain)
        return state if self.fault == "not renewed" else fresh

    def advance(self, state):
        next_state = state
        if self.fault == "changes":
            next_state = EpisodeKeys.of(state.chain)
        return next_state, state.held.key

    def apply(self, draw, x, rollout_extras=None):
        if self.inference and self.fault != "ignores inference":
            return output(x, batch=len(x))
        keep = jax.vmap(lambda key: jr.bernoulli(key, 0.5, (x.shape[-1],)))(draw)
        if self.fault == "where inference":
            keep = keep | jnp.asarray(self.inference)
        return output(jnp.where(keep, x, 0.0), batch=len(x))


def test_held_keys():
    passes(Dropout())
    assert "Held" in broken(Dropout("changes"), "freshness").cause
    assert "EpisodeKeys.of" in broken(Dropout("not renewed"), "freshness").cause


def test_inference():
    violation = broken(Dropout("ignores inference"), "inference")
    assert "self.inference" in violation.cause
    # The flag may also be looked at inside the computation.
    passes(Dropout("where inference"), laws=["inference"])


class Noise(StochasticModule[Any, Any]):
    """Noise that no flag turns off."""

    def apply(self, draw, x, rollout_extras=None):
        return output({"noisy": x + normals(draw, 3), "clean": x}, batch=len(x))


def test_noise_without_a_flag_may_stand_beside_one_with():
    passes(Sequential([Dropout(), Noise()]), laws=["inference"])
    violation = broken(Sequential([Dropout("ignores inference"), Noise()]), "inference")
    assert violation.place == ("Sequential[0]",)


class Ensemble(ChainedModule[Any, Any, Any, Any]):
    """Keys `[B, E]`: the mean of two noises, each with a chain of its own."""

    def initialize_state(self, keys):
        return jax.vmap(lambda key: jr.split(key, 2))(keys)

    def reset_state(self, state):
        return derive(state, "next episode")

    def advance(self, state):
        return derive(state, "next"), derive(state, "now")

    def apply(self, draw, x, rollout_extras=None):
        noise = jax.vmap(lambda keys: normals(keys, x.shape[-1]))(draw)
        return output(x + jnp.mean(noise, axis=1), batch=len(x))


def test_ensembles_of_keys():
    passes(Ensemble())


class Lazy(StatefulModule[Any, Any, Any]):
    """Advances its keys only where the input is positive."""

    def initialize_state(self, keys):
        return keys

    def reset_state(self, state):
        return state

    def __call__(self, state, x, rollout_extras=None):
        advanced, draw = advance_keys(state)
        next_state = jnp.where(x[:, 0] > 0, advanced, state)
        return output(x + normals(draw, 3), batch=len(x), next_state=next_state)


def test_keys_that_advance_now_and_then():
    assert "in some steps only" in broken(Lazy(), "freshness").cause


class Shared(StochasticModule[Any, Any]):
    """Carries one key for all, and never uses it."""

    def initialize_state(self, keys):
        return jnp.broadcast_to(keys[:1], keys.shape)

    def apply(self, draw, x, rollout_extras=None):
        return output(x, batch=len(x))


def test_environments_share_no_key():
    violation = broken(Shared(), "freshness", laws=["freshness"])
    assert "environments 0 and 1 hold the same key" in violation.problem


class EmptyPlace(StatefulModule[Any, Any, Any]):
    """A carry with a leaf that holds no number."""

    def initialize_state(self, keys):
        return {"keys": keys, "none": jnp.zeros((len(keys), 0), jnp.float32)}

    def reset_state(self, state):
        return {"keys": state["keys"], "none": jnp.zeros_like(state["none"])}

    def __call__(self, state, x, rollout_extras=None):
        keys, draw = advance_keys(state["keys"])
        next_state = {"keys": keys, "none": state["none"]}
        return output(x + normals(draw, 3), batch=len(x), next_state=next_state)


def test_leaves_without_numbers():
    passes(EmptyPlace())
    passes(Stateless(lambda x: {"x": x, "none": x[:, :0]}))


def embed(inputs):
    table = jnp.arange(12.0, dtype=jnp.float32).reshape(4, 3)
    shown = jnp.where(inputs["on"][:, None], table[inputs["index"]], 0.0)
    return shown + inputs["x"]


def test_integers_and_booleans_keep_to_the_example():
    index = jnp.array([3, 0, 1, 1, 2])
    x = {"x": X, "index": index, "on": index > 1}
    passes(Stateless(embed), x)

    def in_range(inputs):
        # Out of range would be NaN, and NaN has no finite gradient.
        row = jnp.take(jnp.eye(4, 3), inputs["index"], axis=0, mode="fill")
        return row * inputs["x"]

    passes(Stateless(in_range), x, laws=["slicing", "gradient"])


def test_a_scan_inside_and_two_held_children():
    class Inner(StochasticModule[Any, Any]):
        def initialize_state(self, keys):
            return {"chain": derive(keys, "chain"), "held": Held(derive(keys, "h"))}

        def reset_state(self, state):
            chain, held = advance_keys(state["chain"])
            return {"chain": chain, "held": Held(held)}

        def advance(self, state):
            chain, draw = advance_keys(state["chain"])
            held = state["held"].key
            draws = (draw, derive(held, "left"), derive(held, "right"))
            return {"chain": chain, "held": state["held"]}, draws

        def apply(self, draw, x, rollout_extras=None):
            draw, left, right = draw

            def step(carry, _):
                chain, total = carry
                chain, now = advance_keys(chain)
                return (chain, total + normals(now, 3)), None

            (_, total), _ = jax.lax.scan(step, (draw, x), None, length=2)
            total = total + normals(left, 3) * normals(right, 3)
            return output(total, batch=len(x))

    passes(Inner())


@pytest.mark.parametrize(
    ("x", "settings", "text"),
    [
        (X[:3], {}, "at least 4 rows"),
        ({"a": X, "b": X[:4]}, {}, "share the leading axis B"),
        ({"a": X, "b": 1.0}, {}, "example_input['b'] to be an array"),
        (jnp.zeros(()), {}, "got a scalar"),
        ((), {}, "share the leading axis B"),
        (jax.ShapeDtypeStruct((5, 3), jnp.float32), {}, "check_structure"),
        (X, {"laws": ["slicing", "sloth"]}, "'sloth'; the laws are structure, carry"),
        (X, {"laws": "slicing"}, "write ['slicing']"),
        (X, {"length": 1}, "at least 2 steps"),
    ],
)
def test_arguments(x, settings, text):
    with pytest.raises(ValueError) as caught:
        check_module(Stateless(jnp.tanh), x, key=jr.key(0), **settings)
    assert text in str(caught.value)


def test_only_the_laws_that_are_asked_for():
    wrong = Integrator("truncated gradient")
    passes(wrong, laws=[law for law in LAWS if law != "gradient"])
    broken(wrong, "gradient", laws=["gradient"])


def test_low_precision():
    layer = Dense(3, 4, key=jr.key(0))
    low = jax.tree.map(lambda leaf: leaf.astype(jnp.bfloat16), layer)
    passes(low, X.astype(jnp.bfloat16), laws=["slicing", "unroll", "replay"])
