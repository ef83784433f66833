"""Figures: information is read first, and then drawn."""

from pluribus.testbed.cells import Cell
from pluribus.testbed.figures import make_panels
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
