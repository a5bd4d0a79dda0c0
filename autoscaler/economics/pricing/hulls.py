"""Upper hull of worth over the use of a scarce resource."""

from __future__ import annotations

from collections.abc import Iterable

# Use, worth, and index; holding nothing has index -1.
Corner = tuple[float, float, int]


def upper_hull(points: Iterable[Corner]) -> list[Corner]:
    """Return the hull's corners by rising use and worth.

    The hull begins with nothing, or with the best point of no use.

    Args:
        points: sorted by rising use, never below 0. Of equal points the first is kept.
    """
    corners: list[Corner] = [(0.0, 0.0, -1)]
    highest_worth = 0.0
    for point in points:
        if point[1] <= highest_worth:
            continue
        highest_worth = point[1]
        while corners and (point[0] <= corners[-1][0] or _sags(corners, point)):
            corners.pop()
        corners.append(point)
    return corners


def _sags(corners: list[Corner], new: Corner) -> bool:
    """Return whether the last corner lies on or below the line from the one before it to `new`."""
    if len(corners) < 2:
        return False
    (x0, y0, _), (x1, y1, _) = corners[-2:]
    return (y1 - y0) * (new[0] - x0) <= (new[1] - y0) * (x1 - x0)
