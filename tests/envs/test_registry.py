import sys

import pytest

from nnx_ppo_fn import envs
from nnx_ppo_fn.envs import registry


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
        ("CARTPOLE", "'cartpole'"),
    ],
)
def test_unknown_names_get_the_nearest_one(name, match):
    with pytest.raises(envs.UnknownEnvironmentError) as caught:
        envs.make(name)
    message = str(caught.value)
    assert isinstance(caught.value, ValueError)
    assert f"no environment {name!r}" in message
    assert f"(did you mean {match}?)" in message
    patterns = ("playground:<id>", "brax:<id>", "gymnax:<id>")
    assert all(known in message for known in (*envs.available(), *patterns))
    assert "\n" not in message


def test_no_match_no_guess():
    with pytest.raises(envs.UnknownEnvironmentError) as caught:
        envs.make("§§§")
    assert "did you mean" not in str(caught.value)


def test_unknown_gymnax_id():
    pytest.importorskip("gymnax")
    with pytest.raises(envs.UnknownEnvironmentError) as caught:
        envs.make("gymnax:CartPole-v0")
    message = str(caught.value)
    assert "(did you mean 'gymnax:CartPole-v1'?)" in message
    assert "gymnax:MemoryChain-bsuite" in message and "probe:memory" not in message


def test_available_lists_extras_on_request():
    pytest.importorskip("gymnax")
    assert "gymnax:Pendulum-v1" in envs.available(extras=True)
    assert set(envs.available()) < set(envs.available(extras=True))


def test_families():
    families = {family.prefix: family for family in envs.families()}
    assert list(families) == ["", "playground:", "brax:", "gymnax:"]
    assert families[""].names == envs.available()
    for prefix, family in families.items():
        assert family.extra == prefix.removesuffix(":")
        assert family.installed == bool(family.ids)
        assert family.about and "\n" not in family.about
        assert all(
            name == prefix + id
            for name, id in zip(family.names, family.ids, strict=True)
        )


@pytest.mark.parametrize(
    "family, missing, id",
    [
        ("gymnax", "gymnax", "CartPole-v1"),
        # What gymnax imports without declaring it.
        ("gymnax", "six", "CartPole-v1"),
        ("brax", "brax", "ant"),
        ("playground", "mujoco_playground", "CartpoleBalance"),
    ],
)
def test_missing_extra(monkeypatch, family, missing, id):
    if missing == "six":
        pytest.importorskip("gymnax")
    for module in list(sys.modules):
        if module.split(".")[0] in (family, missing) or module.endswith(f"._{family}"):
            monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, missing, None)
    monkeypatch.delattr(f"nnx_ppo_fn.envs._{family}", raising=False)

    with pytest.raises(envs.MissingExtraError) as caught:
        envs.make(f"{family}:{id}")
    message = str(caught.value)
    assert isinstance(caught.value, ImportError)
    assert f'pip install "nnx_ppo_fn[{family}]"' in message
    assert repr(missing) in message and "\n" not in message
    only = [one for one in registry._SOURCES if one.extra == family]
    monkeypatch.setattr(registry, "_SOURCES", only)
    _, listed = envs.families()
    assert not listed.installed and listed.ids == ()


@pytest.mark.parametrize("name", [None, 5])
def test_a_name_is_a_string(name):
    with pytest.raises(TypeError, match="expected a name such as 'cartpole', got"):
        envs.make.__wrapped__(name)


def test_a_prefix_in_capitals_is_recognised():
    pytest.importorskip("gymnax")
    with pytest.raises(envs.UnknownEnvironmentError) as caught:
        envs.make("GYMNAX:catch-bsuite")
    assert "(did you mean 'gymnax:Catch-bsuite'?)" in str(caught.value)
