import io
import sys

import pytest

from nnx_ppo_fn.algorithms.ppo import train_ppo
from nnx_ppo_fn.cli import main, one_seed
from small_runs import SMALL


@pytest.fixture(scope="session")
def run(tmp_path_factory):
    """A whole small run: its folder, its output, and what `train_ppo` returned."""
    folder = tmp_path_factory.mktemp("run") / "probe"
    results, stdout = [], io.StringIO()

    def remembered(*arguments, **options):
        results.append(train_ppo(*arguments, **options))
        return results[0]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(one_seed, "train_ppo", remembered)
        patch.setattr(sys, "stdout", stdout)
        code = main([*SMALL, "--seed", "3", "--out", str(folder)])
    assert code == 0
    return folder, stdout.getvalue(), results[0]


@pytest.fixture
def one_line(capsys):
    """A function for the only line on the standard error, which says who complains."""

    def read(kind="error: "):
        (line,) = capsys.readouterr().err.splitlines()
        assert line.startswith(f"nnx-ppo-fn: {kind}")
        return line

    return read
