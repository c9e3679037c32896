"""The command `eval`: how a trained policy does, in numbers and in pictures."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import jax.random as jr

from .._files import expect_place
from ..algorithms.evaluation import evaluate
from ..algorithms.trajectory import record_episode
from ..envs.types import is_renderable, RenderingError
from ..runs import CONFIG, load_run, read_description
from ..video import expect_video_name, write_video
from .parsing import options_class, parse
from .progress import number
from .usage import refusing, UsageError
from .values import COUNT, FILE, FOLDER, PIXELS, SEED, switch


ABOUT = (
    "Plays episodes with a trained policy, and films the first one with --render.\n\n"
    "Rewards are the environment's own, whatever the scale was in training."
)

EvalOptions = options_class(
    "EvalOptions",
    (
        "folder",
        FOLDER.option("DIR", "the run folder.", hint="", positional=True),
        None,
    ),
    ("episodes", COUNT.option("--episodes", "how many to play."), 64),
    (
        "stochastic",
        switch("act with noise, as in training, rather than by the likeliest actions."),
        False,
    ),
    ("seed", SEED.option("--seed", "of starts and noise."), 0),
    (
        "render",
        FILE.option(
            "--render",
            "film the first episode: a name ending in .gif or .mp4.",
            hint="",
        ),
        None,
    ),
    ("height", PIXELS.option("--height", "of the film, in pixels."), 240),
    ("width", PIXELS.option("--width", "of the film, in pixels."), 320),
)


def run(arguments: Sequence[str]) -> int:
    """Reads the options, plays, and prints what came of it.

    **Arguments:**

    - `arguments`: the words after `eval`.

    **Returns:**

    The exit code.
    """
    options = parse(EvalOptions, arguments, command="eval", about=ABOUT)
    if options.folder is None:
        raise UsageError("which run? For example: nnx-ppo-fn eval runs/my-run")
    env, network, config = _load(options.folder)
    if options.render is not None:
        _expect_film(env, options)
    longest = env.max_episode_length or config.eval.max_episode_length
    key, deterministic = jr.key(options.seed), not options.stochastic
    metrics = evaluate(
        env,
        network,
        key=key,
        n_envs=options.episodes,
        max_episode_length=longest,
        deterministic=deterministic,
        percentiles=(0, 100),
    )
    description = read_description(options.folder)
    how = "with noise" if options.stochastic else "by the likeliest actions"
    print(
        f"{description['environment']}, {description['policy']}: {options.episodes:,} "
        f"episodes {how}, seed {options.seed}"
    )
    for line in _table(metrics):
        print(line)
    if options.render is not None:
        # The first of the episodes above.
        film = record_episode(
            env,
            network,
            key=jr.fold_in(key, 0),
            max_episode_length=longest,
            deterministic=deterministic,
        )
        saying = f"cannot write {options.render}"
        with refusing(RenderingError, OSError, ValueError, ImportError, saying=saying):
            frames = film.frames(env, height=options.height, width=options.width)
            write_video(options.render, frames, seconds_per_step=env.seconds_per_step)
        print(
            f"{options.render}: an episode of {film.length:,} steps, "
            f"return {number(film.episode_reward)}"
        )
    return 0


def _load(folder: Path) -> tuple[Any, Any, Any]:
    if not folder.is_dir():
        raise UsageError(f"there is no folder {folder}")
    inside = sorted(path.parent for path in folder.glob(f"*/{CONFIG}"))
    if inside and not (folder / CONFIG).exists():
        raise UsageError(
            f"{folder} is not a run but holds several; choose one, such as {inside[0]}"
        )
    with refusing(OSError, ValueError, TypeError, ImportError):
        return load_run(folder)


def _expect_film(env: Any, options: Any) -> None:
    """Says before anything is played what would stand in the way of a film."""
    if not is_renderable(env):
        name = read_description(options.folder)["environment"]
        raise UsageError(f"{name} cannot draw itself; leave --render away")
    with refusing(ValueError, OSError, saying="--render"):
        expect_video_name(options.render)
        expect_place(options.render)


def _table(metrics: Mapping[str, Any]) -> list[str]:
    """Mean, deviation and range over episodes; one line per kind of reward."""
    rows = {"return": "eval/episode_reward", "length": "eval/lifespan"}
    rows |= {
        f"return of {name.split('/')[2]}": name.removesuffix("/mean")
        for name in metrics
        if name.startswith("eval/episode_reward/") and name.count("/") == 3
        if name.endswith("/mean")
    }
    width = max(len("truncated"), *map(len, rows))
    lines = [" ".join([" " * width, *(f"{name:>10}" for name in _COLUMNS)])]
    for title, name in rows.items():
        values = (number(float(metrics[f"{name}/{end}"])) for end in _COLUMNS.values())
        lines.append(" ".join([f"{title:{width}}", *(f"{x:>10}" for x in values)]))
    truncated = f"{float(metrics['eval/truncated']):.0%}"
    return [*lines, f"{'truncated':{width}} {truncated:>10} of the episodes"]


_COLUMNS = {"mean": "mean", "std": "std", "min": "p0", "max": "p100"}
