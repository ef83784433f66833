"""Calibration against slow loops and torchmetrics, at the ends of bins, with empty and dropped bins.

Known disagreements with torchmetrics: its bins are [a, b), ours (a, b]; and it puts a confidence of
exactly 1.0 into a bin of its own.
"""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close
from torchmetrics.functional.classification import binary_calibration_error, multiclass_calibration_error

from pluribus.errors import InputError, SettingError
from pluribus.metrics import METRICS, adaptive_ece, class_conditional_ece, ece, mce, reliability
from pluribus.metrics.calibration import binned, equal_size, equal_width
from tests.metrics.examples import answers, classes, stated, sure

NORMS = {"l1": 1.0, "l2": 2.0, "max": math.inf}
hits = st.lists(st.tuples(st.floats(0, 1), st.booleans()), min_size=1, max_size=60)


def loop(confidence, correct, bins, least=1):
    """Size and gap of each bin with enough samples, one sample after another."""
    groups = [[] for _ in range(bins)]
    for p, right in zip(confidence, correct, strict=True):
        groups[max(math.ceil(p * bins) - 1, 0)].append((p, right))
    means = [(len(group), *np.mean(group, axis=0)) for group in groups if len(group) >= least]
    return [(size, abs(accuracy - p)) for size, p, accuracy in means]


def top(prediction, target):
    return prediction.confidence.flatten().tolist(), (prediction.labels == target).flatten().tolist()


@pytest.mark.parametrize("least", [1, 6])
@pytest.mark.parametrize("bins", [1, 15, 20])
@pytest.mark.parametrize("made", [classes(), answers(), classes(30, 3, 2, 2)])
def test_errors_are_those_of_a_loop_over_samples(made, bins, least):
    parts, n = loop(*top(*made), bins, least), made[1].numel()
    assert_close(ece(*made, bins=bins, least=least), sum(size * gap for size, gap in parts) / n)
    assert_close(mce(*made, bins=bins, least=least), max(gap for _, gap in parts))


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("bins", [15, 20])
def test_errors_are_those_of_torchmetrics_between_the_ends_of_bins(bins, norm):
    prediction, target = classes(500)
    probabilities = prediction.probabilities
    expected = multiclass_calibration_error(probabilities, target, num_classes=4, n_bins=bins, norm=norm)
    assert_close(ece(prediction, target, bins, NORMS[norm]), expected.item(), rtol=1e-6, atol=1e-7)


def test_torchmetrics_keeps_a_confidence_of_one_in_a_bin_of_its_own():
    prediction, target = stated([[1.0, 0.0], [0.96, 0.04]]), torch.tensor([0, 1])
    theirs = multiclass_calibration_error(prediction.probabilities, target, num_classes=2, n_bins=15)
    assert_close(theirs.item(), (0 + 0.96) / 2, rtol=1e-6, atol=0)
    assert_close(ece(prediction, target), abs(0.98 - 0.5))


def test_torchmetrics_measures_the_confidence_of_yes_and_not_of_the_answer():
    prediction, target = answers(400)
    probabilities = prediction.probabilities
    theirs = binary_calibration_error(probabilities, target.long(), n_bins=10).item()
    edges = equal_width(probabilities, 10)
    assert_close(binned(probabilities, target == 1, edges).error(), theirs, rtol=1e-6, atol=1e-7)
    assert abs(ece(prediction, target, bins=10) - theirs) > 1e-3


def test_a_bin_holds_its_upper_end_and_the_first_one_zero():
    confidence = torch.tensor([0.0, 0.25, 0.25000001, 0.5, 0.75, 0.99, 1.0], dtype=torch.float64)
    found = binned(confidence, confidence > 0.5, equal_width(confidence, 4))
    assert_close(found.edges, torch.tensor([0, 0.25, 0.5, 0.75, 1]).double())
    assert found.counts.tolist() == [2, 2, 1, 2]
    assert_close(found.confidence, torch.tensor([0.125, 0.375000005, 0.75, 0.995]).double())
    assert_close(found.accuracy, torch.tensor([0.0, 0.0, 1.0, 1.0]).double())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("bins", [3, 10, 15, 20])
def test_ends_are_rounded_as_confidences_are(bins, dtype):
    confidence = torch.tensor([k / bins for k in range(1, bins + 1)], dtype=dtype)
    assert binned(confidence, confidence > 2, equal_width(confidence, bins)).counts.tolist() == [1] * bins


def test_sure_predictions_are_as_wrong_as_their_mistakes():
    prediction, target = sure([[0, 1, 2, 0]], 3), torch.tensor([0, 1, 1, 0])
    found = reliability(prediction, target)
    assert found.counts.tolist() == [0] * 14 + [4]
    assert found.confidence[-1] == 1
    assert found.confidence[:-1].isnan().all()
    for error in (ece, mce, adaptive_ece):
        assert_close(error(prediction, target), 0.25)
    assert_close(class_conditional_ece(prediction, target), (0 + 0 + 1) / 3)


@pytest.mark.parametrize("right", [0, 1])
def test_sure_right_answers_are_calibrated_and_sure_wrong_ones_are_not(right):
    prediction, target = sure([[1, 1, 1]], 2), torch.full((3,), right)
    for error in (ece, mce, adaptive_ece):
        assert error(prediction, target) == 1 - right
    assert class_conditional_ece(prediction, target) == (1 - right) / 2


def test_dropped_bins_count_among_all_samples():
    confidence = torch.tensor([0.72] * 6 + [0.92] * 5).double()
    found = binned(confidence, torch.zeros(11), equal_width(confidence, 20))
    assert_close(found.error(), (6 * 0.72 + 5 * 0.92) / 11)
    assert_close(found.error(least=6), 6 * 0.72 / 11)
    assert_close(found.error(math.inf), 0.92)
    assert_close(found.error(math.inf, least=6), 0.72)


def test_the_patching_rows_use_twenty_bins_and_drop_those_of_at_most_five_samples():
    made = classes(80)
    assert METRICS["ece_20"](*made) == ece(*made, bins=20, least=6)
    assert METRICS["mce_20"](*made) == mce(*made, bins=20, least=6)
    assert METRICS["ece_20"](*made) != ece(*made, bins=20)


def test_without_a_bin_of_enough_samples_there_is_no_error_to_tell():
    made = classes(4)
    assert math.isnan(ece(*made, bins=20, least=6))
    assert math.isnan(mce(*made, bins=20, least=6))


def test_adaptive_bins_share_sorted_samples_evenly():
    made = classes(300)
    confidence, correct = map(np.array, top(*made))
    parts = np.array_split(np.argsort(confidence), 15)
    assert reliability(*made, spacing=equal_size).counts.tolist() == [20] * 15
    gaps = [abs(confidence[part].mean() - correct[part].mean()) for part in parts]
    assert_close(adaptive_ece(*made), float(np.mean(gaps)))


@pytest.mark.parametrize("n", [1, 2, 14, 16, 31, 100])
def test_adaptive_bins_differ_by_one_sample_at_most(n):
    confidence = torch.rand(n, generator=torch.Generator().manual_seed(n), dtype=torch.float64)
    found = binned(confidence, confidence > 0.5, equal_size(confidence, 15))
    assert (found.edges.diff() >= 0).all()
    assert found.counts.sum() == n
    assert found.counts.max() - found.counts.min() <= 1


@settings(deadline=None, max_examples=60)
@given(
    pairs=st.lists(st.tuples(st.integers(0, 4), st.booleans()), min_size=1, max_size=40),
    seed=st.integers(0, 99),
)
def test_adaptive_bins_do_not_part_equal_confidences(pairs, seed):
    confidence, correct = torch.tensor([[p / 4, right] for p, right in pairs]).double().T
    found = binned(confidence, correct, equal_size(confidence, 6))
    places = [
        {int(torch.bucketize(p, found.edges[1:-1])) for p in confidence[confidence == v]} for v in confidence
    ]
    assert all(len(place) == 1 for place in places)
    order = torch.randperm(len(confidence), generator=torch.Generator().manual_seed(seed))
    again = binned(confidence[order], correct[order], equal_size(confidence[order], 6))
    assert_close(again.error(), found.error())


@pytest.mark.parametrize("made", [classes(400, 5), answers(300), classes(10, 3, 5)])
def test_class_conditional_error_is_a_mean_over_predicted_classes(made):
    prediction, target = made
    probabilities = prediction.log_probabilities.exp().movedim(1, -1).flatten(0, -2)
    outcomes, total = probabilities.shape[1], 0.0
    for c in range(outcomes):
        own = probabilities.argmax(1) == c
        parts = loop(probabilities[own, c].tolist(), (target.flatten()[own] == c).tolist(), 15)
        total += sum(size * gap for size, gap in parts) / max(int(own.sum()), 1)
    assert_close(class_conditional_ece(prediction, target), total / outcomes)


def test_a_class_that_is_never_predicted_adds_nothing():
    prediction, target = stated([[0.7, 0.2, 0.1]] * 4), torch.tensor([0, 0, 1, 2])
    assert_close(class_conditional_ece(prediction, target), (0.7 - 0.5) / 3)


@settings(deadline=None, max_examples=80)
@given(pairs=hits, bins=st.integers(1, 20))
def test_errors_are_ordered_and_bounded(pairs, bins):
    confidence, correct = torch.tensor(pairs).double().T
    found = binned(confidence, correct, equal_width(confidence, bins))
    assert found.counts.sum() == len(pairs)
    errors = [abs((confidence - correct).mean().item()), *(found.error(norm) for norm in NORMS.values())]
    assert all(low <= high + 1e-9 for low, high in zip([0, *errors], [*errors, 1], strict=True))


def test_drawn_targets_are_calibrated():
    assert ece(*classes(40_000)) < 0.01
    assert class_conditional_ece(*classes(40_000)) < 0.015


@pytest.mark.parametrize("wrong", [-0.1, 1.1, math.nan])
def test_confidences_out_of_range_are_refused(wrong):
    confidence = torch.tensor([0.5, wrong])
    with pytest.raises(InputError, match=r"confidences must lie in 0 to 1, got .*\. Use probabilities"):
        binned(confidence, confidence > 0, equal_width(confidence, 15))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"bins": 0}, "bins must be at least 1, got 0"),
        ({"least": 0}, "least must be at least 1, got 0"),
        ({"norm": 0.5}, "norm must be .*, got 0.5"),
    ],
)
def test_impossible_settings_are_refused_by_name(wrong, message):
    with pytest.raises(SettingError, match=message):
        ece(*classes(), **wrong)
