"""Drawing: points are where the numbers are."""

from pluribus.report.columns import Cell as Number
from pluribus.testbed.curves import Line
from pluribus.testbed.drawing import draw_methods, draw_ranked, draw_subsets

LINE = Line("2 options", (2, 3, 4), (Number(5.0, 0.5), Number(1.0, 0.1), Number(2.0, 0.2)))


def test_subsets_have_their_standard_errors():
    (trace,) = draw_subsets([LINE]).data
    assert list(trace.y) == [5.0, 1.0, 2.0]
    assert list(trace.error_y.array) == [0.5, 0.1, 0.2]


def test_a_star_marks_the_lowest_point_and_networks_are_a_level():
    curve, star, level = draw_ranked([LINE], Number(1.5, 0.1)).data
    assert list(curve.x) == [2, 3, 4]
    assert (list(star.x), list(star.y)) == ([3], [1.0])
    assert (list(level.x), list(level.y)) == ([2, 4], [1.5, 1.5])
    assert len(draw_ranked([LINE], None).data) == 2


def test_methods_are_ordered_by_their_mean():
    rows = [
        ("swag", Number(3.0, 0.1), False),
        ("emp", Number(1.0, 0.1), False),
        ("prior", Number(2.0, 0.1), True),
    ]
    drawn = draw_methods(rows)
    assert list(drawn.layout.yaxis.categoryarray) == ["swag", "prior", "emp"]
    assert [list(trace.x) for trace in drawn.data] == [[3.0, 1.0], [2.0]]
