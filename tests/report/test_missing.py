"""Missing data: every hole in the records is named."""

import math
from dataclasses import replace

from pluribus.report.missing import LONGEST, missing
from tests.report.records import classes, failed, numbers, only_group


def test_nothing_is_said_where_nothing_is_missing():
    runs = [classes(kind, seed) for kind in ("single", "mc_dropout") for seed in range(2)]
    assert missing(only_group(*runs)) == []


def test_failed_runs_are_named_with_their_error():
    assert "mimo, seed 0, failed: ValueError: no <such> layer" in missing(only_group(classes(), failed()))
    long = missing(only_group(classes(), failed(error="x" * 5000)))[0]
    assert long == f"mimo, seed 0, failed: {'x' * LONGEST}…"
    assert missing(only_group(failed()))[-1] == "No run succeeded, so there is nothing to show."


def test_single_seeds_single_methods_and_uneven_seeds_are_said():
    said = " ".join(missing(only_group(classes())))
    assert "one configuration, single" in said
    assert "There is one seed" in said
    uneven = only_group(classes(), classes(seed=1), classes("mc_dropout"))
    assert "Configurations have different seeds: single 0, 1; mc_dropout 0." in missing(uneven)
    other = only_group(classes(), classes("mc_dropout", seed=1))
    assert "Configurations have different seeds: single 0; mc_dropout 1." in missing(other)
    without = missing(only_group(classes("mc_dropout"), classes("deep_ensembles")))
    assert "The single network is not among the configurations" in " ".join(without)


def test_missing_metrics_and_outcomes_are_named_by_configuration():
    partial = replace(classes("mc_dropout"), outcomes=None)
    partial.metrics.update(ece=math.nan, nll=math.inf)
    said = " ".join(missing(only_group(classes(), partial)))
    assert "ECE is missing in runs of mc_dropout." in said
    assert "NLL is missing in runs of mc_dropout." in said
    assert "No outcomes lie beside the records of mc_dropout" in said


def test_missing_shifted_and_foreign_data_are_said():
    said = missing(only_group(numbers(), numbers("mc_dropout")))
    assert "Nothing was measured on shifted data." in said
    assert "Nothing was measured on data out of distribution." in said


def test_a_seed_that_came_twice_is_said():
    again = replace(classes(), key="again")
    assert "single has several runs of seed 0: the last of each is shown." in missing(
        only_group(classes(), again)
    )


def test_sets_that_only_some_were_measured_on_are_said():
    fewer = classes("mc_dropout")
    fewer.ood["night"] = {"auroc_entropy": 0.9}
    fewer.shifted.pop("fog/5")
    said = missing(only_group(classes(), fewer, classes("mimo", shifted={}, ood={})))
    assert "Averages over data out of distribution are over different sets: single lacks night." in said
    assert "Averages over shifted data are over different sets: mc_dropout lacks fog/5." in said
