"""The ledger of claims has the numbers of the studies of widths."""

import json
from pathlib import Path
from statistics import fmean, stdev

import pytest

ROOT = Path(__file__).parents[2]
CLAIMS = (ROOT / "docs" / "claims.md").read_text(encoding="utf-8")
WIDTHS = ("width 0.25", "width 0.5", "width 1", "width 2")


def scores(study, label, metric):
    """Return a score of a configuration by seed."""
    lines = (ROOT / "benchmarks/results" / f"defaults_{study}.jsonl").read_text(encoding="utf-8").splitlines()
    runs = [json.loads(line) for line in lines]
    return {run["seed"]: run[metric] for run in runs if run["label"] == label}


def shown(values):
    """Return mean and standard error as the ledger has them."""
    return f"{fmean(values):.3f} ± {stdev(values) / len(values) ** 0.5:.3f}"


@pytest.mark.parametrize("metric", ["test_accuracy", "test_aupr_entropy"])
def test_the_claim_of_widths_has_the_numbers_that_were_measured(metric):
    *first, last = (shown(list(scores("widths", label, metric).values())) for label in WIDTHS)
    assert f"{', '.join(first)} and {last}" in CLAIMS


def test_the_paired_difference_of_widths_is_the_measured_one():
    one, other = (scores("widths", label, "test_aupr_entropy") for label in WIDTHS[2:])
    assert f"higher by {shown([other[seed] - one[seed] for seed in one])}" in CLAIMS
