"""The command `envs`."""

import pytest

from nnx_ppo_fn.cli import listing, main
from nnx_ppo_fn.envs.registry import Family


@pytest.fixture(autouse=True)
def two_families(monkeypatch):
    families = (
        Family("", "", True, ("cartpole", "pendulum"), "small ones"),
        Family("far:", "far", False, (), "large ones"),
        Family("near:", "near", True, ("A-v1", "B-v1"), "other ones"),
    )
    monkeypatch.setattr(listing, "families", lambda: families)


def test_the_list_says_what_there_is_and_how_to_get_the_rest(capsys):
    assert main(["envs"]) == 0
    assert capsys.readouterr().out == (
        "built-in (2 environments)\n"
        "  small ones\n"
        "  cartpole, pendulum\n"
        "\n"
        "far:<id> (not installed)\n"
        "  large ones\n"
        '  to install: pip install "nnx_ppo_fn[far]"\n'
        "\n"
        "near:<id> (2 environments)\n"
        "  other ones\n"
        "  A-v1, B-v1\n"
    )


@pytest.mark.parametrize(
    ("family", "names"),
    [("near", "near:A-v1\nnear:B-v1\n"), ("built-in", "cartpole\npendulum\n")],
)
def test_a_family_is_a_list_of_names(family, names, capsys):
    assert main(["envs", family]) == 0
    assert capsys.readouterr().out == names


def test_families_that_cannot_be_listed(one_line):
    assert main(["envs", "naer"]) == 2
    assert "did you mean 'near'" in one_line()
    assert main(["envs", "far:"]) == 2
    assert 'run: pip install "nnx_ppo_fn[far]"' in one_line()
