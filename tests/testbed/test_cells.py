"""Cells: the text of a grid names all combinations."""

import pytest

from pluribus.errors import SettingError
from pluribus.testbed.cells import PAPER_SEEDS, Cell, paper_seeds, parse_grid


def test_a_grid_is_every_combination_with_few_points_first():
    grid = parse_grid("D=2, 3; lambda=1; epsilon=0.1,1")
    assert grid.cells == [Cell(2, 1, 0.1), Cell(2, 1, 1.0), Cell(3, 1, 0.1), Cell(3, 1, 1.0)]
    assert grid.shapes() == [(2, 1), (3, 1)]


def test_missing_axes_are_the_papers():
    grid = parse_grid("D=10")
    assert grid.inputs == (10,)
    assert len(grid.cells) == 9
    assert len(parse_grid("").cells) == 18


@pytest.mark.parametrize("text", ["D", "dimension=3", "D=ten", "D=1.5", "D=0", "epsilon=-1", "D="])
def test_a_grid_that_is_none_is_refused(text):
    with pytest.raises(SettingError, match="grid must be"):
        parse_grid(text)


def test_seeds_are_the_papers_and_then_new_ones():
    seeds = paper_seeds(13)
    assert tuple(seeds[:10]) == PAPER_SEEDS
    assert len(set(seeds)) == 13
