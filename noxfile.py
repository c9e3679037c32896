"""The project's chores: `nox -s lint types tests docs train bench extras`."""

import shutil

import nox


nox.options.default_venv_backend = "virtualenv"
nox.options.reuse_venv = "yes"
nox.options.sessions = ["lint", "types", "tests"]

EXTRAS = (
    "none",
    "cli",
    "plot",
    "xarray",
    "gymnax",
    "brax",
    "playground",
    "nnx",
    "tensorboard",
    "wandb",
    "all",
)


@nox.session
def lint(session: nox.Session) -> None:
    session.install("-e", ".[dev]")
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")


@nox.session
def types(session: nox.Session) -> None:
    session.install("-e", ".[dev]")
    session.run("pyright")


@nox.session
def tests(session: nox.Session) -> None:
    session.install("-e", ".[test]")
    session.run("pytest", *session.posargs)


@nox.session
def docs(session: nox.Session) -> None:
    session.install("-e", ".[docs]")
    build = ("mkdocs", "build", "--strict", "--config-file", "docs/mkdocs.yml")
    session.run(*build, env={"NO_MKDOCS_2_WARNING": "1"})


@nox.session
def train(session: nox.Session) -> None:
    session.install("-e", ".[cli,gymnax]")
    session.run("nnx-ppo-fn", "train", *session.posargs)


@nox.session
def bench(session: nox.Session) -> None:
    """Measures on the NVIDIA card where there is one, else on the processor."""
    extras = "bench,cuda" if shutil.which("nvidia-smi") else "bench"
    session.install("-e", f".[{extras}]")
    session.run("python", "-m", "benchmarks", *session.posargs)


@nox.session
@nox.parametrize("extra", EXTRAS, ids=EXTRAS)
def extras(session: nox.Session, extra: str) -> None:
    """Makes an environment with one extra and nothing else."""
    session.install("." if extra == "none" else f".[{extra}]")
    session.run("python", "tests/extra_environment.py", extra)
