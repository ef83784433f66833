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
