"""The upper hull of what may be had at each use of something scarce."""

from __future__ import annotations

from collections.abc import Iterable

# Use, worth, and which it is; nothing at all is of number -1.
Corner = tuple[float, float, int]


def upper_hull(points: Iterable[Corner]) -> list[Corner]:
    """Its corners by rising use and worth, from nothing, or what is had for no use, on.

    Args:
        points: by rising use; of equals the first stands. Use is never below 0.
    """
    corners: list[Corner] = [(0.0, 0.0, -1)]
    most = 0.0
    for point in points:
        if point[1] <= most:
            continue
        most = point[1]
        while corners and (point[0] <= corners[-1][0] or _sags(corners, point)):
            corners.pop()
        corners.append(point)
    return corners


def _sags(corners: list[Corner], new: Corner) -> bool:
    """Whether the last corner lies on or beneath the line from the one before it to the new."""
    if len(corners) < 2:
        return False
    (x0, y0, _), (x1, y1, _) = corners[-2:]
    return (y1 - y0) * (new[0] - x0) <= (new[1] - y0) * (x1 - x0)
