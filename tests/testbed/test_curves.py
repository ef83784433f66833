"""Curves: means over cells at every number of members."""

from pluribus.testbed.cells import Cell
from pluribus.testbed.curves import ranked_lines, subset_lines
from pluribus.testbed.results import Result


def curve(*scores):
    return {size: {"code": score, "printed": score} for size, score in enumerate(scores, 1)}


def make_results():
    found = []
    for noise, shift in ((0.1, 0.0), (1.0, 1.0)):
        for seed in (0, 1):
            more = {
                "deep_ensembles": {"random": curve(9.0, 2 + shift, 1 + shift)},
                "layer_ensembles_2": {
                    "random": curve(8.0, 3.0, 2.0),
                    "ranked": curve(900.0, 1 + shift, 0.5 + shift, 0.7 + shift),
                    "best": 3,
                },
                "prior": {},
            }
            for method, curves in more.items():
                scores = {"code": 1 + shift, "printed": 2.0}
                found.append(Result(method, Cell(10, 1, noise), seed, {}, scores, 0.1, **curves))
    return found


def test_subsets_are_means_over_cells():
    deep, layers = subset_lines(make_results(), "code")
    assert (deep.name, deep.sizes) == ("K networks", (1, 2, 3))
    assert [number.mean for number in deep.numbers] == [9.0, 2.5, 1.5]
    assert layers.name == "2 options, random members"


def test_ranked_curves_begin_at_two_and_know_their_lowest_point():
    (line,) = ranked_lines(make_results(), "code")
    assert line.sizes == (2, 3, 4)
    assert line.sizes[line.best] == 3
