"""Fronts and hypervolumes, against counting by hand and by drawing points."""

import random

import pytest

from pluribus.search.front import dominates, hypervolume, hypervolumes, ranks


def test_domination_needs_one_better_value():
    assert dominates((1, 2), (1, 3))
    assert not dominates((1, 2), (1, 2))
    assert not dominates((1, 3), (2, 2))


def test_ranks_peel_fronts():
    assert ranks([(1, 4), (4, 1), (2, 5), (5, 5), (1, 4)]) == [0, 0, 1, 2, 0]
    assert ranks([]) == []


@pytest.mark.parametrize("dimensions", [1, 2, 3, 4])
def test_hypervolume_equals_the_share_of_random_points(dimensions):
    generator = random.Random(dimensions)
    points = [[generator.random() for _ in range(dimensions)] for _ in range(6)]
    draws = [[generator.random() for _ in range(dimensions)] for _ in range(4000)]
    inside = sum(any(all(a <= b for a, b in zip(p, x, strict=True)) for p in points) for x in draws)
    assert hypervolume(points, [1.0] * dimensions) == pytest.approx(inside / len(draws), abs=0.03)


def test_points_beyond_the_reference_count_nothing():
    assert hypervolume([(0, 2)], (1, 1)) == 0
    assert hypervolume([], (1, 1)) == 0


def test_hypervolumes_never_fall_and_share_their_axes():
    curve = hypervolumes([(3, 3), (2, 4), (1, 1)], among=[(0, 0)])
    assert curve == sorted(curve)
    assert hypervolumes([(0, 0)], among=[(1, 1)]) == [1.0]
    assert hypervolumes([(float("nan"), 1)]) == [0.0]
