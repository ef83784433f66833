"""Curves: means over cells at every number of members."""

from pluribus.testbed.curves import ranked_lines, subset_lines
from tests.testbed.made_up import make_results


def test_subsets_are_means_over_cells():
    deep, layers = subset_lines(make_results(), "code")
    assert (deep.name, deep.sizes) == ("K networks", (1, 2, 3))
    assert [number.mean for number in deep.numbers] == [9.0, 2.5, 1.5]
    assert layers.name == "2 options, random members"


def test_ranked_curves_begin_at_two_and_know_their_lowest_point():
    (line,) = ranked_lines(make_results(), "code")
    assert line.sizes == (2, 3, 4)
    assert line.sizes[line.best] == 3
