"""The command `check`: the laws on a module of one's own."""

import math
import sys
from collections.abc import Sequence
from typing import Any

import equinox as eqx
import jax
import jax.random as jr
import jax.tree_util as jtu
from jaxtyping import Array, Key

from .._keys import derive, one_per_environment
from ..envs.registry import make
from ..networks._border import border_of
from ..networks._errors import CompositionError
from ..testing.check_module import check_module
from ..testing.static import check_structure
from ..testing.violation import LAWS, LawViolation
from .finding import failure, find, made
from .parsing import options_class, parse
from .usage import is_lack_of_memory, refusing, tell, UsageError
from .values import NAME, SEED, SIZE, SIZES


ABOUT = "Checks that a module obeys the laws, so that PPO may slice its experience."

CheckOptions = options_class(
    "CheckOptions",
    (
        "place",
        NAME.option(
            "OBJECT",
            "package.module:object, found from the current folder: a module, or a "
            "function that makes one from a key, or a pair of either and an example "
            "of what it takes. With --env the function may also ask for the "
            "observation_size and the action_size.",
            hint="",
            positional=True,
        ),
        None,
    ),
    (
        "features",
        SIZES.option(
            "--features",
            "try it on random numbers: this many per row, or an array of these sizes.",
            hint="",
        ),
        (),
    ),
    (
        "env",
        NAME.option("--env", "try it on observations of this environment.", hint=""),
        None,
    ),
    ("batch", SIZE.option("--batch", "rows of the example, at least 4."), 8),
    ("seed", SEED.option("--seed", "of weights and examples."), 0),
)


def run(arguments: Sequence[str]) -> int:
    """Reads the options, finds the module, and checks it.

    **Arguments:**

    - `arguments`: the words after `check`.

    **Returns:**

    The exit code: 0 where every law holds, 1 where one is broken.
    """
    options = parse(CheckOptions, arguments, command="check", about=ABOUT)
    if options.place is None:
        raise UsageError("which module? For example: nnx-ppo-fn check my.layers:Noise")
    key = jr.key(options.seed)
    place = options.place
    env = _environment(options.env)
    module, example = made(find(place), place, derive(key, "module"), _sizes(env))
    example = _example(options, env, example, derive(key, "example"))
    try:
        with refusing(ValueError, TypeError):
            # Of no laws: that the example can be tested with at all.
            check_module(module, example, key=key, laws=())
        with refusing(CompositionError):
            _expect_fit(module, example)
            # Cheap, and all of it first: what runs below relies on shapes that fit.
            check_structure(module, example)
            for law in LAWS:
                check_module(module, example, key=derive(key, "check"), laws=[law])
                print(f"held  {law}", flush=True)
            print(f"{place} obeys all {len(LAWS)} laws")
    except LawViolation as violation:
        print(violation, file=sys.stderr)
        return 1
    except (UsageError, OSError):
        raise
    except Exception as error:
        if is_lack_of_memory(error):
            raise
        tell(f"error: {place} failed: {failure(error)}")
        return 1
    return 0


def _expect_fit(module: Any, example: Any) -> None:
    """Takes a step in shapes alone.

    A complaint then is about the example that was asked for; the laws take others.
    """

    def step(x: Any) -> Any:
        keys = one_per_environment(jr.key(0), len(jtu.tree_leaves(x)[0]))
        return module(module.initialize_state(keys), x)

    try:
        eqx.filter_eval_shape(step, example)
    except CompositionError:
        raise
    except Exception:
        # The laws say it better.
        return


def _environment(name: str | None) -> Any:
    if name is None:
        return None
    with refusing(ValueError, ImportError):
        return make(name)


def _sizes(env: Any) -> dict[str, int]:
    """What a function that makes a network may ask for, under both usual names."""
    if env is None:
        return {}
    border = border_of(None, None, False, env)
    features = border.features
    return {
        "observation_size": features,
        "obs_size": features,
        "action_size": border.action_size,
    }


def _example(options: Any, env: Any, example: Any, key: Key[Array, ""]) -> Any:
    """What the module is tried on; `example` is what it comes with, if it does."""
    sources = {
        f"the example that comes with {options.place}": example is not None,
        "--features": bool(options.features),
        "--env": options.env is not None,
    }
    given = [source for source, is_given in sources.items() if is_given]
    if not given:
        raise UsageError(
            "what does it take? Say --features 4 for rows of 4 numbers, --env cartpole "
            "for an environment's observations, or let the object be (module, example)"
        )
    if len(given) > 1:
        raise UsageError(f"choose one of {' and '.join(given)}")
    if env is not None:
        return jax.vmap(env.reset)(one_per_environment(key, options.batch)).obs
    if options.features:
        shape = (options.batch, *options.features)
        if math.prod(shape) >= 2**31:
            raise UsageError(f"an array of sizes {list(shape)} is too large")
        return jr.normal(key, shape)
    return example
