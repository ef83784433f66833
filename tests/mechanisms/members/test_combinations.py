"""Combinations: all rows that take one option of each site, or some that are drawn."""

import pytest
import torch
from torch.testing import assert_close

from pluribus.mechanisms.members.combinations import (
    all_rows,
    choose_rows,
    draw_rows,
    keep_draws,
    keep_rows,
)
from pluribus.mechanisms.members.mixture import uniform
from tests.cases import seeded


def test_all_rows_come_in_lexicographic_order_with_the_first_site_slowest():
    assert all_rows([2, 3]) == [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)]
    assert all_rows([1, 2, 1]) == [(0, 0, 0), (0, 1, 0)]
    assert len(all_rows([5] * 3)) == 125


def test_drawn_rows_choose_every_option_alike_and_independently():
    rows = torch.tensor(draw_rows([2, 4], 40_000, seeded(0)))
    counts = torch.zeros(2, 4).index_put(tuple(rows.T), torch.ones(()), accumulate=True)
    assert_close(counts / 40_000, torch.full((2, 4), 1 / 8), atol=0.01, rtol=0)


@pytest.mark.parametrize(("sizes", "draws"), [([3, 3], 8), ([2, 5], 3), ([5] * 60, 20)])
def test_kept_rows_are_different_and_follow_from_the_seed(sizes, draws):
    kept = keep_rows(sizes, draws, seeded(1))
    assert len(set(kept)) == len(kept) == draws
    assert all(0 <= option < size for row in kept for option, size in zip(row, sizes, strict=True))
    assert kept == keep_rows(sizes, draws, seeded(1)) != keep_rows(sizes, draws, seeded(2))


def test_few_rows_are_all_kept():
    assert keep_rows([3, 3], 9, seeded(0)) == all_rows([3, 3])


def test_many_rows_are_drawn_independently():
    rows, shares = keep_draws([uniform(3), uniform(3)], 8, seeded(0))
    assert (len(rows), shares) == (8, [1 / 8] * 8)
    assert rows == choose_rows([uniform(3), uniform(3)], 8, seeded(0))
