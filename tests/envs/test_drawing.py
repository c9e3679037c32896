import sys

import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from nnx_ppo_fn import envs
from nnx_ppo_fn.envs._drawing import draw_cartpole, draw_grid, draw_pendulum


pytest.importorskip("PIL")

BLUE, ORANGE = (0x1F, 0x5F, 0xA8), (0xE0, 0x82, 0x14)


def middle(frame, colour):
    """The mean place of a colour, from the frame's middle, x to the right and y up, as
    fractions of the frame's width."""
    height, width, _ = frame.shape
    rows, columns = np.nonzero((frame == colour).all(axis=-1))
    assert len(rows) > 5
    return (columns.mean() - width / 2) / width, (height / 2 - rows.mean()) / width


def test_the_cart_is_where_it_is():
    """5.6 m are shown over the width, so 1.4 m are a quarter of it."""
    x, _ = middle(draw_cartpole(1.4, 0.0, 240, 320), BLUE)
    assert x == pytest.approx(0.25, abs=0.01)
    x, _ = middle(draw_cartpole(0.0, 0.0, 240, 320), BLUE)
    assert x == pytest.approx(0.0, abs=0.01)


@pytest.mark.parametrize("angle", [-0.5, 0.0, 0.5])
def test_the_pole_leans_as_it_does(angle):
    """The middle of a pole of 1 m is at 0.5 (sin, cos) from the joint, at 0.1."""
    frame = draw_cartpole(0.0, angle, 480, 640)
    cart, pole = np.asarray(middle(frame, BLUE)), np.asarray(middle(frame, ORANGE))
    expected = np.asarray([0.5 * np.sin(angle), 0.1 + 0.5 * np.cos(angle)]) / 5.6
    np.testing.assert_allclose(pole - cart, expected, atol=0.006)


@pytest.mark.parametrize(
    "angle, place", [(0.0, (0, 1)), (np.pi / 2, (-1, 0)), (np.pi, (0, -1))]
)
def test_the_pendulum_points_as_it_does(angle, place):
    """A positive angle is to the left, as in Gym; the smaller side shows 2.7 m."""
    frame = draw_pendulum(angle, 200, 200)
    x, y = middle(frame, ORANGE)
    np.testing.assert_allclose([x, y], np.asarray(place) / 2.7, atol=0.01)


def test_cells_are_drawn_in_their_places():
    cells = np.zeros((2, 3, 2), np.float32)
    cells[1, 2, 0] = 1
    frame = draw_grid(cells, 40, 80)
    x, y = middle(frame, BLUE)
    assert (x > 0.2, y < 0) == (True, True)
    assert not (frame == ORANGE).all(axis=-1).any()


def test_edges_are_smooth():
    frame = draw_pendulum(0.3, 100, 100)
    assert len(np.unique(frame.reshape(-1, 3), axis=0)) > 20


@pytest.mark.parametrize("name", ["cartpole", "hidden-cartpole", "pendulum"])
def test_environments_draw_themselves(name):
    env = envs.make(name)
    states = [env.reset(jr.key(0))]
    for _ in range(4):
        action = jnp.asarray(1) if env.discrete else jnp.ones(1)
        states.append(env.step(states[-1], action))
    frames = env.render([states[0], states[-1]], height=60, width=80)
    assert [frame.shape for frame in frames] == 2 * [(60, 80, 3)]
    assert all(frame.dtype == np.uint8 for frame in frames)
    assert (frames[0] != frames[1]).any()
    assert isinstance(env, envs.RenderableEnv)
    assert env.seconds_per_step == (0.05 if name == "pendulum" else 0.02)


def test_without_pillow(monkeypatch):
    monkeypatch.setitem(sys.modules, "PIL.Image", None)
    env = envs.make("cartpole")
    with pytest.raises(ImportError, match=r'pip install "nnx_ppo_fn\[cli\]"'):
        env.render([env.reset(jr.key(0))])
