"""Separation: shares of samples by OOD score, and the AUROC that records know."""

import numpy as np
import pytest

from pluribus.report.figures.separation import BINS, draw_separation, read_separation, separation_panel
from tests.report.records import classes, numbers, only_group


def test_shares_sum_to_one_and_order_follows_the_ood_score():
    run = classes(skill=6.0)
    info = read_separation(only_group(run).entries[0], "noise", "entropy")
    assert sum(info.inside) == pytest.approx(1)
    assert sum(info.outside) == pytest.approx(1)
    assert np.dot(info.centres, info.outside) > np.dot(info.centres, info.inside)
    assert info.auroc.mean == pytest.approx(run.ood["noise"]["auroc_entropy"])


def test_a_constant_score_still_has_bins():
    run = classes()
    run.outcomes.scores["entropy"][:] = 0
    run.outcomes.ood["noise"]["entropy"][:] = 0
    info = read_separation(only_group(run).entries[0], "noise", "entropy")
    assert sum(info.inside) == pytest.approx(1)


def test_bins_that_are_narrow_for_their_place_stand_side_by_side():
    run = classes()
    for scores in (run.outcomes.scores, run.outcomes.ood["noise"]):
        scores["entropy"][:] = 2.3 + scores["entropy"] / 1e4
    drawn = draw_separation(
        read_separation(only_group(run).entries[0], "noise", "entropy"), "noise", "entropy"
    )
    assert len(set(drawn.data[0].x)) == BINS


def test_the_drawing_names_both_sets_and_the_auroc():
    info = read_separation(only_group(classes(), classes(seed=1)).entries[0], "noise", "max_logit")
    drawn = draw_separation(info, "noise", "max_logit")
    assert [trace.name for trace in drawn.data] == ["test data", "noise"]
    assert drawn.layout.title.text == f"AUROC {info.auroc.show(3)}"
    assert "±" in drawn.layout.title.text
    assert drawn.layout.xaxis.title.text == "Strangeness: max logit"


def test_the_panel_offers_configurations_sets_and_criteria():
    panel = separation_panel(only_group(classes(), classes("mc_dropout")))
    labels, sets, criteria = (selector.options for selector in panel.selectors)
    assert (labels, sets, criteria[0]) == (("single", "mc_dropout"), ("noise",), "entropy")
    assert len(panel.figures) == 2 * 5
    assert separation_panel(only_group(numbers())) is None
    assert separation_panel(only_group(classes(outcomes=None))) is None


def test_the_score_that_was_chosen_on_validation_data_comes_first():
    runs = [classes(seed=seed, ood_score="max_logit") for seed in range(2)]
    criteria = separation_panel(only_group(*runs, classes(seed=2, ood_score="mahalanobis"))).selectors[2]
    assert criteria.options[:2] == ("max logit", "entropy")


def test_a_stored_score_of_the_calibration_is_drawn_first():
    run = classes(ood_score="mahalanobis")
    run.outcomes.scores["chosen"], run.outcomes.ood["noise"]["chosen"] = np.zeros(9), np.ones(9)
    run.ood["noise"]["auroc_chosen"] = 1.0
    panel = separation_panel(only_group(run))
    assert panel.selectors[2].options[0] == "chosen on validation data"
    assert "AUROC 1.000" in panel.figures["single", "noise", "chosen on validation data"].layout.title.text


def test_scores_that_are_not_finite_are_left_out():
    run = classes()
    run.outcomes.scores["entropy"][:2] = np.nan, np.inf
    info = read_separation(only_group(run).entries[0], "noise", "entropy")
    assert np.isfinite(info.centres).all()
    assert sum(info.inside) == pytest.approx(1)
    run.outcomes.ood["noise"]["entropy"][:] = np.nan
    assert read_separation(only_group(run).entries[0], "noise", "entropy") is None
