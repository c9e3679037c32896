"""Pictures of the built-in environments, drawn with Pillow (the extra `cli`)."""

import math
from typing import Any, TypeAlias

import numpy as np
from jaxtyping import Float, UInt8

from .._extras import import_extra


Frame: TypeAlias = UInt8[np.ndarray, "height width 3"]
"""One picture, RGB."""

BLUE = "#1f5fa8"
ORANGE = "#e08214"
GREY = "#8a8f98"
PALE = "#d5d8dc"
WHITE = "#ffffff"

# Drawn larger and reduced, which smooths the edges.
_OVERSAMPLING = 4

_POSITION_LIMIT = 2.4
_CHANNELS = (BLUE, ORANGE, "#3f9b7f", "#b0413e", "#7a5ea8", "#c9a227", "#4fa3c7")


class _Canvas:
    """A white sheet in metres: `(0, 0)` is a point of choice, and y points up."""

    def __init__(
        self, height: int, width: int, *, metres: float, origin: tuple[float, float]
    ):
        """`metres` is the length that the smaller side shows; `origin` is where
        `(0, 0)` lies, as fractions of width and height from the lower left."""
        image, draw = _pillow()
        large = (width * _OVERSAMPLING, height * _OVERSAMPLING)
        self._image = image.new("RGB", large, WHITE)
        self._draw = draw.Draw(self._image)
        self._scale = min(large) / metres
        self._origin = (origin[0] * large[0], (1 - origin[1]) * large[1])

    def line(
        self,
        start: tuple[float, float],
        end: tuple[float, float],
        colour: str,
        w: float,
    ) -> None:
        """A line of width `w` with round ends."""
        points = [self._pixel(start), self._pixel(end)]
        self._draw.line(points, fill=colour, width=round(w * self._scale))
        for end_point in (start, end):
            self.disc(end_point, w / 2, colour)

    def disc(self, centre: tuple[float, float], radius: float, colour: str) -> None:
        """A filled circle."""
        x, y = self._pixel(centre)
        r = radius * self._scale
        self._draw.ellipse([x - r, y - r, x + r, y + r], fill=colour)

    def box(
        self, centre: tuple[float, float], size: tuple[float, float], colour: str
    ) -> None:
        """A filled rectangle with round corners."""
        x, y = self._pixel(centre)
        half_width, half_height = (side * self._scale / 2 for side in size)
        corners = [x - half_width, y - half_height, x + half_width, y + half_height]
        self._draw.rounded_rectangle(corners, radius=half_height / 3, fill=colour)

    def frame(self) -> Frame:
        """What was drawn."""
        return np.asarray(self._image.reduce(_OVERSAMPLING), np.uint8)

    def _pixel(self, point: tuple[float, float]) -> tuple[float, float]:
        x, y = point
        return self._origin[0] + x * self._scale, self._origin[1] - y * self._scale


def draw_cartpole(position: float, angle: float, height: int, width: int) -> Frame:
    """A cart on its track, with the limits of the track, and the pole.

    **Arguments:**

    - `position`: of the cart in metres; the track ends at ±2.4.
    - `angle`: of the pole in radians, 0 if upright, positive to the right.
    - `height`, `width`: the size in pixels.
    """
    shown = 2 * _POSITION_LIMIT + 0.8
    metres = shown * min(height, width) / width
    canvas = _Canvas(height, width, metres=metres, origin=(0.5, 0.38))
    canvas.line((-_POSITION_LIMIT, -0.18), (_POSITION_LIMIT, -0.18), PALE, 0.035)
    for limit in (-_POSITION_LIMIT, _POSITION_LIMIT):
        canvas.line((limit, -0.26), (limit, -0.1), GREY, 0.035)
    canvas.box((position, 0.0), (0.6, 0.28), BLUE)
    joint = (position, 0.1)
    tip = (joint[0] + math.sin(angle), joint[1] + math.cos(angle))
    canvas.line(joint, tip, ORANGE, 0.1)
    canvas.disc(joint, 0.035, WHITE)
    return canvas.frame()


def draw_pendulum(angle: float, height: int, width: int) -> Frame:
    """A pendulum on its pivot, and the upright position that it is to reach.

    **Arguments:**

    - `angle`: in radians, 0 if upright, positive to the left.
    - `height`, `width`: the size in pixels.
    """
    canvas = _Canvas(height, width, metres=2.7, origin=(0.5, 0.5))
    canvas.line((0.0, 0.0), (0.0, 1.0), PALE, 0.02)
    tip = (-math.sin(angle), math.cos(angle))
    canvas.line((0.0, 0.0), tip, BLUE, 0.1)
    canvas.disc(tip, 0.14, ORANGE)
    canvas.disc((0.0, 0.0), 0.1, GREY)
    canvas.disc((0.0, 0.0), 0.04, WHITE)
    return canvas.frame()


def draw_grid(
    cells: Float[np.ndarray, "rows columns channels"], height: int, width: int
) -> Frame:
    """A field of cells, each in the colour of its last channel that is not 0.

    **Arguments:**

    - `cells`: what is where.
    - `height`, `width`: the size in pixels.
    """
    image, draw = _pillow()
    picture = image.new("RGB", (width, height), WHITE)
    pen = draw.Draw(picture)
    rows, columns, _ = cells.shape
    side = max(min(height // rows, width // columns), 1)
    left, top = (width - columns * side) // 2, (height - rows * side) // 2
    field = [left, top, left + columns * side - 1, top + rows * side - 1]
    pen.rectangle(field, fill="#f2f3f5")
    for row, column, channel in zip(*np.nonzero(cells), strict=True):
        x, y = left + int(column) * side, top + int(row) * side
        colour = _CHANNELS[int(channel) % len(_CHANNELS)]
        pen.rectangle([x, y, x + side - 2, y + side - 2], fill=colour)
    return np.asarray(picture, np.uint8)


def _pillow() -> tuple[Any, Any]:
    """Pillow's `Image` and `ImageDraw`."""
    purpose = "drawing an environment"
    return (
        import_extra("PIL.Image", extra="cli", purpose=purpose),
        import_extra("PIL.ImageDraw", extra="cli", purpose=purpose),
    )
