"""The bootstrap of the moonshot on synthetic outcomes, where the truth is known."""

import json
import sys
from pathlib import Path

import pytest
import torch
from torch.testing import assert_close

from pluribus.metrics.ood import auroc

FOLDER = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture(scope="module")
def table():
    """The script, imported from its folder, in which it finds its neighbours."""
    sys.path.insert(0, str(FOLDER))
    try:
        import moonshot_table
    finally:
        sys.path.remove(str(FOLDER))
    return moonshot_table


def outcome(table, seed, worse=0.0, seeds=3, samples=600):
    """Return outcomes whose NLL is greater by `worse`, on samples that all configurations share."""
    shared = torch.Generator().manual_seed(0)
    own = torch.Generator().manual_seed(seed)
    difficulty = torch.rand(samples, generator=shared, dtype=torch.float64)
    noise = 0.02 * torch.randn(seeds, samples, generator=own, dtype=torch.float64)
    confidence = 1 - difficulty / 2
    correct = torch.rand(samples, generator=shared) < confidence
    gaps = torch.stack([table.class_gaps(confidence, correct)] * seeds)
    return table.Outcome(2 * difficulty + noise + worse, gaps, difficulty + noise, difficulty + 0.5 + noise)


def test_class_gaps_sum_to_the_expected_calibration_error(table):
    from pluribus.likelihood import Categorical
    from pluribus.metrics import ece

    logits = torch.randn(1, 200, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    target = torch.randint(3, (200,), generator=torch.Generator().manual_seed(1))
    prediction = Categorical().prediction(logits)
    gaps = table.class_gaps(prediction.confidence, prediction.labels == target)
    assert_close(gaps.mean(0).abs().sum().item(), ece(prediction, target))


def test_interval_gaps_are_zero_for_uniform_ranks(table):
    below = (torch.arange(4000, dtype=torch.float64) + 0.5) / 4000
    assert table.interval_gaps(below).mean(0).abs().sum() < 1e-3


def test_weighted_auroc_matches_a_resample_that_is_written_out(table):
    generator = torch.Generator().manual_seed(0)
    inside, outside = (torch.randint(9, (n,), generator=generator).double() for n in (40, 30))
    in_counts, out_counts = (table.draw_counts(n, 5, generator) for n in (40, 30))
    found = table.weighted_auroc(inside, outside, in_counts, out_counts)
    for row in range(5):
        repeated = [
            scores.repeat_interleave(counts[row].long())
            for scores, counts in ((inside, in_counts), (outside, out_counts))
        ]
        assert_close(found[row].item(), auroc(*repeated))


def test_interval_covers_the_true_difference_and_is_narrow_because_it_is_paired(table):
    one, other = outcome(table, 1, worse=0.05), outcome(table, 2)
    low, high = table.interval(table.paired_differences(one, other, resamples=300)["nll"])
    assert low < 0.05 < high
    # Unpaired, the standard error of a mean of 600 numbers with deviation 0.58 would be 0.024.
    assert high - low < 0.01


def test_equal_configurations_are_no_worse_in_any_measure(table):
    draws = table.paired_differences(outcome(table, 1), outcome(table, 2), resamples=300)
    for measure, differences in draws.items():
        assert table.is_no_worse(measure, *table.interval(differences)), measure


def test_configuration_beyond_the_margin_is_not_accepted(table):
    draws = table.paired_differences(outcome(table, 1, worse=0.03), outcome(table, 2), resamples=300)
    assert not table.is_no_worse("nll", *table.interval(draws["nll"]))


def test_interval_is_wider_when_seeds_differ(table):
    steady = outcome(table, 1)
    moved = torch.tensor([-0.1, 0.0, 0.1], dtype=torch.float64)[:, None]
    restless = table.Outcome(steady.nll + moved, steady.gaps, steady.inside, steady.outside)
    widths = []
    for one in (steady, restless):
        low, high = table.interval(table.paired_differences(one, outcome(table, 2), resamples=300)["nll"])
        widths.append(high - low)
    assert widths[1] > 5 * widths[0]


def test_unfinished_line_of_a_killed_process_is_passed_over(table, tmp_path):
    store = table.Store(tmp_path, tmp_path)
    (tmp_path / "runs.jsonl").write_text('{"key": "a"}\n{"key": "b')
    store.add("runs.jsonl", {"key": "c"})
    assert [line["key"] for line in store.lines("runs.jsonl")] == ["a", "c"]


def test_page_shows_the_tables_of_the_results(table):
    results = json.loads((FOLDER / "results" / "moonshot_table.json").read_text(encoding="utf-8"))
    page = (FOLDER.parent / "docs" / "choosing.md").read_text(encoding="utf-8")
    for task, rows in results["tasks"].items():
        assert table.markdown(task, rows).strip() in page, task
