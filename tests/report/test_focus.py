"""Focus: of many configurations two are shown at first, and all can be chosen."""

from pluribus.report.figures import make_panels
from pluribus.report.focus import HINT, focused
from pluribus.report.recommendation import recommend
from tests.report.records import classes, only_group

KINDS = ("single", "deep_ensembles", "mc_dropout", "batch_ensemble")


def panels(kinds):
    group = only_group(*(classes(kind, 0, 1.0 + i) for i, kind in enumerate(kinds)))
    return {panel.name: panel for panel in focused(make_panels(group), recommend(group))}


def visible(figure):
    return [trace.name for trace in figure.data if trace.visible != "legendonly"]


def test_the_recommended_one_and_the_single_network_are_shown():
    found = panels(KINDS)
    assert visible(found["selective"].first) == ["single", "batch_ensemble"]
    assert visible(found["severity"].first) == ["single", "batch_ensemble"]
    assert visible(found["reliability"].first) == ["perfect", "single", "batch_ensemble"]
    assert len(found["selective"].first.data) == 4
    assert found["selective"].caption.endswith(HINT)


def test_points_of_quality_against_cost_are_all_shown():
    found = panels(KINDS)["pareto"]
    assert set(visible(found.first)) >= set(KINDS)
    assert HINT not in found.caption


def test_a_configuration_that_is_chosen_is_shown():
    drawn = panels(KINDS)["reliability"].figures["mc_dropout",]
    assert "mc_dropout" in visible(drawn)


def test_few_configurations_are_all_shown():
    assert visible(panels(KINDS[:3])["selective"].first) == list(KINDS[:3])
