"""Pooling: all seeds or nothing."""

import numpy as np

from pluribus.report.figures.pooling import pooled
from tests.report.records import classes, only_group


def test_seeds_follow_one_another():
    runs = classes(), classes(seed=1)
    (found,) = pooled(only_group(*runs).entries[0], ("nll",))
    assert np.array_equal(found, np.concatenate([run.outcomes.columns["nll"] for run in runs]))


def test_a_run_without_the_column_leaves_nothing():
    assert pooled(only_group(classes(), classes(seed=1, outcomes=None)).entries[0], ("nll",)) == ()
    assert pooled(only_group(classes()).entries[0], ("nll", "position")) == ()


def test_samples_that_are_not_finite_in_every_column_are_left_out():
    run = classes()
    run.outcomes.columns["nll"][3] = np.inf
    run.outcomes.columns["confidence"][5] = np.nan
    nll, confidence, target = pooled(only_group(run).entries[0], ("nll", "confidence", "target"))
    assert len(nll) == len(confidence) == len(target) == 198
    assert np.isfinite(nll).all()
    run.outcomes.columns["nll"][:] = np.nan
    assert pooled(only_group(run).entries[0], ("nll",)) == ()
