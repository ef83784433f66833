"""Noise: the resampled metrics are the metrics, and intervals hold what they should."""

from dataclasses import replace

import numpy as np
import pytest

from pluribus.comparison.decisions import with_costs
from pluribus.metrics.bootstrap import sample_counts
from pluribus.metrics.costs import Costs
from pluribus.report.noise import FORMS, difference
from tests.report.records import classes, numbers, only_group


def entries(*records):
    return only_group(*records).entries


@pytest.mark.parametrize("name", FORMS)
def test_every_form_is_the_metric_it_names(name):
    of_classes = name in ("accuracy", "nll", "brier", "ece", "expected_cost")
    run = classes(skill=1.0) if of_classes else numbers(noise=2.0)
    run = with_costs(run, Costs(wrong=2, defer=0.3))
    form = FORMS[name]
    value = form.finish(form.parts(run.outcomes.columns).astype(np.float64).mean(0))
    assert value == pytest.approx({**run.metrics, **run.decisions}[name], abs=2e-6)


@pytest.mark.parametrize("name", ["nll", "ece"])
def test_a_difference_is_that_of_the_means(name):
    one, other = entries(classes(), classes(seed=1), classes("mc_dropout", 0, 1.0), classes("mc_dropout", 1))
    gap = difference(other, one, name)
    wanted = np.mean([b.metrics[name] - a.metrics[name] for a, b in zip(one.runs, other.runs, strict=True)])
    assert gap.value == pytest.approx(wanted, abs=2e-6)
    assert gap.low < gap.value < gap.high
    assert (gap.seeds, gap.samples) == (2, 200)


def test_the_interval_of_a_mean_is_that_of_theory():
    one, other = entries(classes(samples=400), classes("mc_dropout", samples=400))
    columns = [entry.runs[0].outcomes.columns["nll"].astype(np.float64) for entry in (one, other)]
    error = (columns[0] - columns[1]).std(ddof=1) / np.sqrt(400)
    gap = difference(one, other, "nll", draws=4000)
    assert gap.high - gap.low == pytest.approx(2 * 1.96 * error, rel=0.06)


def test_equals_are_within_noise_and_unequals_are_not():
    same = [classes("mc_dropout", seed, outcomes=classes(seed=seed).outcomes) for seed in range(3)]
    one, other = entries(*(classes(seed=seed) for seed in range(3)), *same)
    gap = difference(one, other, "nll")
    assert (gap.value, gap.low, gap.high) == (0, 0, 0)
    assert gap.within_noise
    one, better = entries(classes(), classes("mc_dropout", skill=6.0))
    assert not difference(one, better, "nll").within_noise


def test_noise_between_seeds_widens_the_interval():
    skills = (0.5, 2.0, 3.5)
    steady = entries(*(classes(seed=s) for s in range(3)), *(classes("mc_dropout", s) for s in range(3)))
    shaky = entries(
        *(classes(seed=s) for s in range(3)), *(classes("mc_dropout", s, k) for s, k in enumerate(skills))
    )
    widths = [gap.high - gap.low for gap in (difference(*steady, "nll"), difference(*shaky, "nll"))]
    assert widths[1] > 2 * widths[0]


def test_what_cannot_be_paired_is_not_known():
    one, other = entries(classes(seed=0), classes("mc_dropout", seed=1))
    assert difference(one, other, "nll") is None
    one, other = entries(classes(), replace(classes("mc_dropout"), outcomes=None))
    assert difference(one, other, "nll") is None
    one, other = entries(classes(), classes("mc_dropout", samples=100))
    assert difference(one, other, "nll") is None
    foreign = classes("mc_dropout")
    foreign.outcomes.columns["target"] = foreign.outcomes.columns["target"][::-1]
    assert difference(*entries(classes(), foreign), "nll") is None
    one, other = entries(classes(), classes("mc_dropout"))
    assert difference(one, other, "top5") is None
    infinite = classes("mc_dropout")
    infinite.outcomes.columns["nll"][3] = np.inf
    assert difference(*entries(classes(), infinite), "nll") is None


def test_samples_are_drawn_as_often_as_there_are():
    counts = sample_counts(50, 200)
    assert (counts.sum(1) == 50).all()
    assert counts.std(0).mean() == pytest.approx(1.0, abs=0.1)
