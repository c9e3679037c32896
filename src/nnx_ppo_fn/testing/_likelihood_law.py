"""The law of re-weighting for samplers: a log-likelihood is what it says it is.

A likelihood that is wrong alike in the rollout and in the replay gives ratios of 1
under unchanged weights, and trains on a gradient that points elsewhere.
"""

import itertools
from collections.abc import Iterator
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import jax.tree_util as jtu
import numpy as np
from jaxtyping import Array, Float

from ..networks.types import AnyModule
from ._compare import take_rows
from ._compile import unoptimised
from ._gradients import split_differentiable
from ._localise import innermost
from ._sampled import likelihoods, sampled
from ._traces import key_shapes
from ._trial import finite, invent, Trial
from .violation import LawViolation


def expect_right_likelihoods(trial: Trial) -> None:
    """Of every sampler in the module: its gradient, and Gibbs' inequality.

    **Arguments:**

    - `trial`: of a module that has extras.
    """
    for sampler, x in _samplers(trial):
        _expect_gradient(trial, sampler, x)
        _expect_gibbs(trial, sampler, x)


def _samplers(trial: Trial) -> Iterator[tuple[AnyModule, Any]]:
    """The innermost modules that sample, each with an input."""
    shapes = jtu.tree_map(
        lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), trial.xs
    )
    for module, x in innermost(trial.module, shapes, trial.batch):
        state = jax.eval_shape(module.initialize_state, key_shapes(trial.batch))
        stepped = eqx.filter_eval_shape(module, state, x)
        if not sampled(stepped.output) or stepped.rollout_extras is None:
            continue
        own = module is trial.module
        x = trial.steps[0].x if own else invent(x, trial.random("sampler"))
        yield eqx.nn.inference_mode(module, value=False), x


# The gradient.

_DIRECTIONS = 8
_WIDTH = 1e-2


def _expect_gradient(trial: Trial, sampler: AnyModule, x: Any) -> None:
    """What is differentiated is what is computed, in every direction."""
    floats = [leaf.dtype for leaf in jtu.tree_leaves(x) if eqx.is_inexact_array(leaf)]
    if any(dtype != jnp.float32 for dtype in floats):
        return
    random = trial.random("directions")
    state = sampler.initialize_state(trial.keys)
    differentiable, _ = split_differentiable(sampler, state, x)
    for moved in ("x", "parameters"):
        if not any(leaf.size for leaf in jtu.tree_leaves(differentiable[moved])):
            continue
        errors: list[float] = []
        for _ in range(_DIRECTIONS):
            direction = {
                name: _direction(random, part, name == moved)
                for name, part in differentiable.items()
            }
            slopes = _slopes(sampler, state, x, direction)
            total, wide, narrow, analytic = map(float, slopes)
            # Near a kink, or where rounding speaks, differences tell nothing.
            floor = 1e-2 + 1e-3 * abs(total)
            if abs(wide - narrow) <= 0.02 * (abs(wide) + abs(narrow)) + floor:
                size = abs(narrow) + abs(analytic) + floor
                errors.append(abs(narrow - analytic) / size)
        if len(errors) > _DIRECTIONS // 2 and np.median(errors) > 0.05:
            raise LawViolation(
                "re-weighting",
                f"the gradient of {type(sampler).__name__}'s log-likelihood in its "
                f"{'input' if moved == 'x' else 'parameters'} is not its derivative: "
                f"off by {np.median(errors):.0%} of what differences give",
                leaf=".output",
                size=float(np.median(errors)),
                cause="a stop_gradient on the mean or on the standard deviation, or a "
                "custom derivative. Stop the gradient at the action alone: "
                "`raw = stop_gradient(sample)`",
            )


def _direction(random: np.random.Generator, tree: Any, moves: bool) -> Any:
    def draw(leaf: Array) -> Array:
        scale = _scale(leaf) if moves else 0.0
        drawn = scale * random.standard_normal(leaf.shape)
        return jnp.asarray(drawn.astype(leaf.dtype))

    return jtu.tree_map(draw, tree)


@unoptimised
def _slopes(
    sampler: AnyModule, state: Any, x: Any, direction: Any
) -> tuple[Array, Array, Array, Array]:
    """The log-likelihoods' sum; its slope by differences, wide and narrow, and by
    differentiation."""
    extras = jax.lax.stop_gradient(sampler(state, x).rollout_extras)
    differentiable, build = split_differentiable(sampler, state, x)

    def total(differentiable: Any) -> Array:
        module, state, x = build(differentiable)
        return jnp.sum(_by_row(module(state, x, extras).output))

    def moved(width: float) -> Array:
        return total(
            jtu.tree_map(lambda leaf, d: leaf + width * d, differentiable, direction)
        )

    def difference(width: float) -> Array:
        return (moved(width) - moved(-width)) / (2 * width)

    value, gradient = jax.value_and_grad(total)(differentiable)
    products = jtu.tree_map(jnp.vdot, gradient, direction)
    analytic = sum(jtu.tree_leaves(products), jnp.zeros((), jnp.float32))
    return value, difference(_WIDTH), difference(_WIDTH / 4), analytic


# Gibbs' inequality: nothing explains draws better, on average, than what they are
# drawn from. Close by, in both directions, a wrong likelihood shows best; further away,
# one that is right to first order shows too.

_DRAWS = 4000
_ROWS = 3
_DISTANCES = ((0.05, -0.05), (0.5, -0.5))
_STANDARD_ERRORS = 5


def _expect_gibbs(trial: Trial, sampler: AnyModule, x: Any) -> None:
    random = trial.random("Gibbs")
    state = sampler.initialize_state(jr.split(trial.keys[0], _DRAWS))
    compared = False
    for row, distances in itertools.product(range(_ROWS), _DISTANCES):
        here = take_rows(x, row)
        direction = jtu.tree_map(lambda leaf: _away(leaf, random), here)
        for distance in distances:
            there = _moved(here, direction, distance)
            drawn, other = jtu.tree_map(_tiled, here), jtu.tree_map(_tiled, there)
            gain = np.asarray(_gain(sampler, state, drawn, other), np.float64)
            if not np.all(np.isfinite(gain)):
                continue
            compared = True
            mean, error = gain.mean(), gain.std() / _DRAWS**0.5
            if mean < -_STANDARD_ERRORS * error - 1e-4:
                raise LawViolation(
                    "re-weighting",
                    f"actions that {type(sampler).__name__} draws for one input are, "
                    "by its log-likelihoods, likelier under another, by "
                    f"{-mean:.3g} nats on average",
                    leaf=".output",
                    size=float(-mean),
                    cause="the log-likelihood is not that of the distribution which "
                    "is drawn from: a wrong sign, a missing -log(std), actions in "
                    "another order, a temperature in the draw alone, or an action "
                    "that is changed after it was drawn",
                )
    if not compared:
        raise LawViolation(
            "re-weighting",
            f"no log-likelihood of {type(sampler).__name__} was finite, so nothing "
            "says whether it is right",
            leaf=".output",
            cause="infinities or NaN in the example input, or a log-likelihood that "
            "overflows",
        )


def _away(leaf: Any, random: np.random.Generator) -> Any:
    """A direction in which a leaf can be moved: none, if it holds no real numbers."""
    if not jnp.issubdtype(leaf.dtype, jnp.floating):
        return None
    return (_scale(leaf) * random.standard_normal(leaf.shape)).astype(leaf.dtype)


def _moved(tree: Any, direction: Any, distance: float) -> Any:
    return jtu.tree_map(
        lambda step, leaf: (
            leaf if step is None else leaf + (distance * step).astype(leaf.dtype)
        ),
        direction,
        tree,
        is_leaf=lambda node: node is None,
    )


def _scale(leaf: Any) -> float:
    """The root mean square of what is finite in an array, or 0.5 if that is larger."""
    values = finite(leaf)
    return max(float(np.sqrt(np.mean(np.square(values)))) if values.size else 0.0, 0.5)


def _tiled(leaf: Any) -> Array:
    return jnp.asarray(np.broadcast_to(leaf, (_DRAWS, *leaf.shape)))


@unoptimised
def _gain(sampler: AnyModule, state: Any, x: Any, other: Any) -> Float[Array, " N"]:
    """By how much draws at `x` are likelier there than at `other`."""
    extras = sampler(state, x).rollout_extras
    here, there = (_by_row(sampler(state, at, extras).output) for at in (x, other))
    return here - there


def _by_row(output: Any) -> Float[Array, " B"]:
    """The log-likelihood of all that is sampled, per row."""
    leaves = [
        leaf.astype(jnp.float32) for leaf in likelihoods(sampled(output)).values()
    ]
    rows = [jnp.sum(leaf.reshape(len(leaf), -1), axis=-1) for leaf in leaves]
    return sum(rows, jnp.zeros(len(leaves[0]), jnp.float32))
