"""Reliability: curves are those of the metric, for classes and for intervals."""

import numpy as np
import pytest

from pluribus.report.figures.reliability import ALL, FEW, LEVELS, draw_reliability, read_reliability
from pluribus.report.figures.reliability import reliability_panel as panel_of
from tests.report.records import classes, numbers, only_group


def test_gaps_weighted_by_counts_are_the_ece():
    run = classes(skill=1.0, samples=1000)
    (curve,) = read_reliability(only_group(run)).curves
    said, seen, counts = map(np.array, (curve.said, curve.seen, curve.counts))
    assert counts.sum() == 1000
    assert (counts * abs(said - seen)).sum() / 1000 == pytest.approx(run.metrics["ece"], abs=1e-6)


def test_seeds_are_taken_together():
    (curve,) = read_reliability(only_group(classes(), classes(seed=1))).curves
    assert sum(curve.counts) == 400


def test_intervals_of_a_right_distribution_lie_near_the_diagonal():
    info = read_reliability(only_group(numbers(samples=4000)))
    (curve,) = info.curves
    assert info.of_intervals
    assert curve.said == LEVELS
    assert np.abs(np.array(curve.seen) - LEVELS).max() < 0.03
    assert curve.seen[-1] == pytest.approx(numbers(samples=4000).metrics["coverage_95"])


def test_bins_of_a_few_samples_are_not_drawn():
    info = read_reliability(only_group(classes(skill=1.0, samples=60)))
    (curve,) = info.curves
    few = sum(count <= FEW for count in curve.counts)
    assert 0 < few < len(curve.counts)
    assert len(draw_reliability(info).data[1].x) == len(curve.counts) - few


def test_one_configuration_is_drawn_with_its_counts():
    info = read_reliability(only_group(classes(), classes("mc_dropout")))
    assert [trace.name for trace in draw_reliability(info).data] == ["perfect", "single", "mc_dropout"]
    one = draw_reliability(info, "mc_dropout")
    assert [trace.name for trace in one.data] == ["perfect", "mc_dropout", "samples"]
    assert all(count > FEW for count in one.data[2].y)


def test_the_panel_offers_all_and_each():
    panel = panel_of(only_group(classes(), classes("mc_dropout")))
    assert set(panel.figures) == {(ALL,), ("single",), ("mc_dropout",)}
    assert "too sure" in panel.caption
    assert panel_of(only_group(classes(outcomes=None))) is None
