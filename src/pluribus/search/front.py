"""Fronts: which points no other beats in everything, and how much of the space they dominate.

All values here are losses: less is better in every column.
"""

import math
from collections.abc import Sequence

Point = Sequence[float]

MARGIN = 0.1
"""The reference point of a hypervolume lies this share of the range beyond the worst value."""


def dominates(one: Point, other: Point) -> bool:
    """Return whether a point is nowhere worse than another, and somewhere better."""
    pairs = list(zip(one, other, strict=True))
    return all(a <= b for a, b in pairs) and any(a < b for a, b in pairs)


def ranks(points: Sequence[Point]) -> list[int]:
    """Return the non-dominated rank of each point: 0 on the front, 1 on the front of the others, and so on.

    >>> ranks([(1, 2), (2, 1), (2, 2), (3, 3)])
    [0, 0, 1, 2]
    """
    found = [-1] * len(points)
    left = list(range(len(points)))
    rank = 0
    while left:
        front = [i for i in left if not any(dominates(points[j], points[i]) for j in left)]
        for i in front:
            found[i] = rank
        left = [i for i in left if found[i] < 0]
        rank += 1
    return found


def hypervolume(points: Sequence[Point], reference: Point) -> float:
    """Return the volume between the points and a reference point that they dominate.

    Points that do not dominate the reference count nothing. The last coordinate is sliced, and the slices are
    hypervolumes of one dimension less.

    >>> hypervolume([(1, 2), (2, 1)], (3, 3))
    3.0
    """
    inside = [point for point in points if all(a < b for a, b in zip(point, reference, strict=True))]
    if not inside:
        return 0.0
    if len(reference) == 1:
        return float(reference[0] - min(point[0] for point in inside))
    ordered = sorted(inside, key=lambda point: point[-1])
    total = 0.0
    for i, point in enumerate(ordered):
        above = ordered[i + 1][-1] if i + 1 < len(ordered) else reference[-1]
        if above > point[-1]:
            slices = [one[:-1] for one in ordered[: i + 1]]
            total += (above - point[-1]) * hypervolume(slices, reference[:-1])
    return total


def scale(points: Sequence[Point]) -> tuple[list[float], list[float]]:
    """Return the least value and the range of every column; a range of 0 counts as 1."""
    columns = list(zip(*points, strict=True))
    least = [min(column) for column in columns]
    spans = [(max(column) - low) or 1.0 for column, low in zip(columns, least, strict=True)]
    return least, spans


def hypervolumes(points: Sequence[Point], among: Sequence[Point] = ()) -> list[float]:
    """Return the hypervolume after each point, as a share of the greatest that there can be.

    Columns are scaled to [0, 1] by all points; the reference point is 1.1 in each.

    Args:
        points: In the order in which they came.
        among: Further points by which columns are scaled, such as those of another search.
    """
    known = [point for point in (*points, *among) if all(map(math.isfinite, point))]
    if not known:
        return [0.0] * len(points)
    least, spans = scale(known)
    reference = [1 + MARGIN] * len(least)
    greatest = math.prod(reference)
    scaled, found = [], []
    for point in points:
        scaled.append([(value - low) / span for value, low, span in zip(point, least, spans, strict=True)])
        found.append(hypervolume(_front_of(scaled), reference) / greatest)
    return found


def _front_of(points: Sequence[Point]) -> list[Point]:
    """Return the points of the front; fewer points make the hypervolume quick."""
    return [point for point in points if not any(dominates(other, point) for other in points)]
