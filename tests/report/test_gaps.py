"""Gaps: every hole in the records is named."""

import math
from dataclasses import replace

from pluribus.report.gaps import gaps
from tests.report.records import classes, failed, numbers, only_group


def test_nothing_is_said_where_nothing_is_missing():
    runs = [classes(kind, seed) for kind in ("single", "mc_dropout") for seed in range(2)]
    assert gaps(only_group(*runs)) == []


def test_failed_runs_are_named_with_their_error():
    assert "mimo, seed 0, failed: ValueError: no <such> layer" in gaps(only_group(classes(), failed()))
    assert gaps(only_group(failed()))[-1] == "No run succeeded, so there is nothing to show."


def test_single_seeds_single_methods_and_uneven_seeds_are_said():
    said = " ".join(gaps(only_group(classes())))
    assert "one configuration, single" in said
    assert "There is one seed" in said
    uneven = only_group(classes(), classes(seed=1), classes("mc_dropout"))
    assert "Configurations have different numbers of seeds: single 2, mc_dropout 1." in gaps(uneven)
    without = gaps(only_group(classes("mc_dropout"), classes("deep_ensembles")))
    assert "The single network is not among the configurations" in " ".join(without)


def test_missing_metrics_and_outcomes_are_named_by_configuration():
    partial = replace(classes("mc_dropout"), outcomes=None)
    partial.metrics["ece"] = math.nan
    said = " ".join(gaps(only_group(classes(), partial)))
    assert "ECE is missing in runs of mc_dropout." in said
    assert "No outcomes lie beside the records of mc_dropout" in said


def test_missing_shifted_and_foreign_data_are_said():
    said = gaps(only_group(numbers(), numbers("mc_dropout")))
    assert "Nothing was measured on shifted data." in said
    assert "Nothing was measured on data out of distribution." in said
