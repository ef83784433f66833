"""The axis of costs: logarithmic, with multiples that people use; names at the edge."""

import math

from pluribus.report.figures.cost_axis import Place, cost_axis, far_out


def test_multiples_are_ticks():
    axis = cost_axis([1.0, 4.0], "mult-adds ×")
    assert axis["type"] == "log"
    assert axis["tickvals"] == [1, 1.5, 2, 3, 4]
    assert "tickvals" not in cost_axis([1000.0, 4000.0], "params")


def test_costs_of_nothing_have_no_logarithm():
    assert cost_axis([0.0, 2.0], "params") == {"rangemode": "tozero"}
    assert cost_axis([], "params") == {"rangemode": "tozero"}


def test_names_stand_at_the_edge_that_they_lie_beyond():
    places = [Place(0, "a<b", 10.0, 5.0), Place(1, "in", 2.0, 0.5), Place(2, "low", 0.0, -5.0)]
    above, below = far_out(places, (0.0, 1.0), 2)
    assert (above["x"], above["y"], above["text"]) == (math.log10(10), 1.0, "↑ a&lt;b 5.00")
    assert (below["x"], below["y"], below["text"]) == (0.0, 0.0, "↓ low -5.00")
    assert far_out(places, None, 2) == []
