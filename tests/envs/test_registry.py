import sys

import pytest

from nnx_ppo_fn import envs


def test_options_reach_the_environment():
    assert envs.make("hidden-cartpole") == envs.CartPole(hide_velocity=True)
    assert envs.make("cartpole", max_episode_length=7) == envs.CartPole(False, 7)
    with pytest.raises(TypeError, match="colour"):
        envs.make("cartpole", colour="red")


@pytest.mark.parametrize(
    "name, match",
    [
        ("cart-pole", "'cartpole'"),
        ("hidden_cartpole", "'hidden-cartpole'"),
        ("probe:memroy", "'probe:memory'"),
        ("memory", "'probe:memory'"),
    ],
)
def test_unknown_names_get_the_nearest_one(name, match):
    with pytest.raises(envs.UnknownEnvironmentError) as caught:
        envs.make(name)
    message = str(caught.value)
    assert isinstance(caught.value, ValueError)
    assert f"no environment {name!r}" in message
    assert f"Did you mean {match}?" in message
    assert all(known in message for known in (*envs.available(), "gymnax:<id>"))
    assert "\n" not in message


def test_no_match_no_guess():
    with pytest.raises(envs.UnknownEnvironmentError) as caught:
        envs.make("§§§")
    assert "Did you mean" not in str(caught.value)


def test_unknown_gymnax_id():
    pytest.importorskip("gymnax")
    with pytest.raises(envs.UnknownEnvironmentError) as caught:
        envs.make("gymnax:CartPole-v0")
    message = str(caught.value)
    assert "Did you mean 'gymnax:CartPole-v1'?" in message
    assert "gymnax:MemoryChain-bsuite" in message and "probe:memory" not in message


def test_available_lists_extras_on_request():
    pytest.importorskip("gymnax")
    assert "gymnax:Pendulum-v1" in envs.available(extras=True)
    assert set(envs.available()) < set(envs.available(extras=True))


@pytest.mark.parametrize("missing", ["gymnax", "six"])
def test_missing_extra(monkeypatch, missing):
    """`six` is what gymnax imports without declaring it."""
    if missing == "six":
        pytest.importorskip("gymnax")
    for module in list(sys.modules):
        if module.split(".")[0] in ("gymnax", "six") or module.endswith("._gymnax"):
            monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, missing, None)
    monkeypatch.delattr("nnx_ppo_fn.envs._gymnax", raising=False)

    with pytest.raises(envs.MissingExtraError) as caught:
        envs.make("gymnax:CartPole-v1")
    message = str(caught.value)
    assert isinstance(caught.value, ImportError)
    assert 'pip install "nnx_ppo_fn[gymnax]"' in message
    assert repr(missing) in message
    assert envs.available(extras=True) == envs.available()
