import sys
from xml.etree import ElementTree

import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from nnx_ppo_fn import draw_activity, Recording, SampledAction
from nnx_ppo_fn.algorithms import activity_picture


SPACE = "{http://www.w3.org/2000/svg}"


def recording(**changes):
    """Three episodes in 6 steps, two of which end."""
    values = np.random.default_rng(0).normal(size=(6, 3, 4, 3)).astype(np.float32)
    steps = jnp.arange(6)[:, None]
    parts = {
        "activations": {
            "": SampledAction(
                jnp.ones((6, 3), jnp.int32), jnp.asarray(values[..., 0, 0])
            ),
            "[0].M1": jnp.asarray(values),
            "[0].S1": jnp.asarray(values[:, :, 0]).astype(jnp.bfloat16),
            "[1]": jr.split(jr.key(0), (6, 3)),
        },
        "observations": jnp.asarray(values),
        "actions": {"left": steps + jnp.zeros((6, 3), jnp.int32)},
        "rewards": jnp.asarray(values[..., 0, 0]),
        "ongoing": steps < jnp.asarray([[4, 6, 6]]),
        "done": steps == jnp.asarray([[3, 5, 9]]),
        "truncated": steps == jnp.asarray([[9, 5, 9]]),
    }
    return Recording(**(parts | changes))


def read(picture):
    svg = ElementTree.fromstring(picture)
    return [one.text for one in svg.iter(f"{SPACE}text")], svg


def drawn(**options):
    """The figure itself, as long as it is one."""
    found = []
    original = activity_picture._drawn

    def kept(*arguments, **more):
        found.append(original(*arguments, **more))
        return found[0]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(activity_picture, "_drawn", kept)
        draw_activity(recording(), **options)
    axes = found[0].axes
    return {one.get_ylabel(): one for one in axes if one.get_ylabel()}, axes


def test_every_array_has_a_row_under_its_name():
    texts, svg = read(draw_activity(recording()))
    names = ["network.action", "network.log_likelihood", "[0].M1", "[0].S1"]
    assert {*names, "actions['left']", "rewards", "step"} <= set(texts)
    assert "[1]" not in texts
    # One of them is a map, and it has a bar with the scale of its colours.
    assert len(list(svg.iter(f"{SPACE}image"))) >= 1


@pytest.mark.parametrize(
    "environment, title",
    [
        (0, "environment 0: 4 steps, terminated"),
        (1, "environment 1: 6 steps, ended by a time limit"),
        (2, "environment 2: 6 steps, left unfinished"),
    ],
)
def test_it_says_how_the_episode_ended(environment, title):
    assert title in read(draw_activity(recording(), environment=environment))[0]


def test_numbers_are_those_of_the_episode():
    panels, _ = drawn(environment=0)
    given = recording()
    (image,) = panels["[0].M1"].images
    expected = np.asarray(given.activations["[0].M1"][:4, 0]).reshape(4, 12)
    np.testing.assert_array_equal(image.get_array(), expected.T)
    largest = np.abs(expected).max()
    np.testing.assert_allclose(image.get_clim(), (-largest, largest))
    assert image.get_extent() == [-0.5, 3.5, 11.5, -0.5]
    lines = panels["[0].S1"].get_lines()[:3]
    for feature, line in enumerate(lines):
        np.testing.assert_array_equal(line.get_xdata(), np.arange(4))
        values = given.activations["[0].S1"][:4, 0, feature].astype(jnp.float32)
        np.testing.assert_array_equal(line.get_ydata(), values)


def test_the_end_is_marked_where_there_is_one():
    ends = []
    for environment in range(3):
        panels, _ = drawn(environment=environment, step_seconds=0.5)
        *_, last = panels["rewards"].get_lines()
        x = np.asarray(last.get_xdata())
        ends.append(x[0] if len(set(x)) == 1 else None)
    assert ends == [1.75, 2.75, None]
    assert panels["rewards"].get_xlabel() == "seconds"
    assert panels["rewards"].get_xlim() == (-0.25, 2.75)


def test_modules_are_selected_by_path():
    panels, _ = drawn(select="[0]*")
    assert list(panels) == ["[0].M1", "[0].S1", "actions['left']", "rewards"]
    panels, _ = drawn(select=["[0].S1"])
    assert list(panels) == ["[0].S1", "actions['left']", "rewards"]


def test_silence_and_missing_numbers_can_be_drawn():
    silent = jnp.zeros((6, 3, 9)).at[2].set(jnp.nan)
    draw_activity(
        recording(activations={"[0]": silent, "[1]": jnp.full((6, 3, 5), jnp.inf)})
    )
    draw_activity(recording(activations={}))


def test_the_same_recording_makes_the_same_picture():
    assert draw_activity(recording()) == draw_activity(recording())
    assert "<dc:date>" not in draw_activity(recording())
    assert draw_activity(recording())._repr_svg_().startswith("<svg")


@pytest.mark.parametrize(
    "wrong, error, text",
    [
        ({"environment": 3}, ValueError, "environment to be below 3"),
        ({"environment": -1}, ValueError, "environment must be at least 0"),
        ({"select": "[9]"}, ValueError, r"no module stands at '\[9\]'"),
        ({"select": "[1]"}, ValueError, r"put out numbers.*'\[1\]'"),
        ({"step_seconds": 0.0}, ValueError, "step_seconds"),
    ],
)
def test_wrong_arguments_are_refused(wrong, error, text):
    with pytest.raises(error, match=text):
        draw_activity(recording(), **wrong)


def test_what_is_missing_is_said(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(ImportError, match=r'pip install "nnx_ppo_fn\[plot\]"'):
        draw_activity(recording())
