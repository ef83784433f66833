"""Figures: information is read first, and then drawn."""

from pluribus.testbed.figures import make_panels
from tests.testbed.made_up import make_results


def test_every_figure_has_all_cells_and_each():
    panels = make_panels(make_results(), "code")
    assert [panel.name for panel in panels] == ["methods", "subsets", "ranked"]
    for panel in panels:
        assert panel.selectors[0].options == ("all", "D=10, λ=1, ε=0.1", "D=10, λ=1, ε=1")
        assert set(panel.figures) == {(option,) for option in panel.selectors[0].options}


def test_references_are_drawn_apart_from_methods():
    methods = make_panels(make_results(), "code")[0].first
    assert [trace.name for trace in methods.data] == ["methods", "known samplers"]
    assert list(methods.data[1].y) == ["prior"]


def test_methods_without_curves_have_no_figure_of_them():
    results = [result for result in make_results() if result.method == "prior"]
    assert [panel.name for panel in make_panels(results, "code")] == ["methods"]
