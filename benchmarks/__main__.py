"""`python -m benchmarks`; `--help` lists the options."""

import os
import sys
from collections.abc import Sequence

import jax

from nnx_ppo_fn.algorithms.spreading import available_cores

from .json_file import write_json
from .memory import keep_memory
from .picture import draw
from .records import Results
from .running import run
from .settings import parse, Settings
from .table import report


def main(arguments: Sequence[str] | None = None) -> Results:
    """Measures, prints the table, and writes what there is an `--output` for."""
    settings = parse(arguments)
    results = run(settings, lambda line: print(line, file=sys.stderr, flush=True))
    print(report(results))
    _write(results, settings)
    return results


def _write(results: Results, settings: Settings) -> None:
    if settings.output is None:
        return
    write_json(results, settings.output / "benchmark.json")
    if not results.rows:
        return
    try:
        draw(results, settings.output / "benchmark.png")
    except ImportError as error:
        print(f"no picture: {error}; pip install matplotlib", file=sys.stderr)


if __name__ == "__main__":
    # Here and not in `main`, since none of it can be taken back. Processes share a GPU,
    # of which each would take three quarters for itself.
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    keep_memory()
    jax.config.update("jax_num_cpu_devices", available_cores())
    main()
