"""Summary: means over cells of problems that all methods have."""

import math
import statistics

from pluribus.testbed.cells import Cell
from pluribus.testbed.results import Result
from pluribus.testbed.summary import common, counted_seeds, mean_over_cells, rows_of, summarise


def result(method, noise, seed, score, **more):
    return Result(method, Cell(10, 1, noise), seed, {}, {"code": score, "printed": 2 * score}, 0.0, **more)


def test_cells_count_alike_however_many_seeds_they_have():
    numbers = {Cell(1, 1, 1.0): [1.0, 3.0], Cell(1, 1, 2.0): [10.0, 10.0, 10.0, 14.0]}
    found = mean_over_cells(numbers)
    assert found.mean == (2 + 11) / 2
    variance = statistics.variance([1, 3]) / 2 + statistics.variance([10, 10, 10, 14]) / 4
    assert math.isclose(found.error, math.sqrt(variance) / 2)


def test_one_seed_has_no_standard_error():
    assert math.isnan(mean_over_cells({Cell(1, 1, 1.0): [1.0]}).error)


def test_problems_that_only_some_methods_have_are_left_out():
    results = [result("a", 1.0, 0, 1.0), result("b", 1.0, 0, 2.0), result("a", 1.0, 1, 9.0)]
    assert common(results) == results[:2]
    assert common(results[1:]) == results[1:]
    assert counted_seeds(results) == {Cell(10, 1, 1.0): 2}


def test_ranked_members_have_a_row_of_their_own():
    curve = {1: {"code": 5.0, "printed": 6.0}, 2: {"code": 0.5, "printed": 0.6}}
    results = [result("layer_ensembles_2", 1.0, 0, 1.0, ranked=curve, best=2), result("prior", 1.0, 0, 4.0)]
    rows = rows_of(results)
    assert [row.label for row in rows] == ["layer_ensembles_2", "layer_ensembles_2, ranked", "prior"]
    assert [summarise(results, row, "code").mean for row in rows] == [1.0, 0.5, 4.0]
    assert summarise(results, rows[1], "printed").mean == 0.6
    assert [row.is_reference for row in rows] == [False, False, True]
