"""The registry: complete rows, values in their range and on their side, all of them at once."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from pluribus.likelihood import Categorical, Gaussian
from pluribus.metrics import METRICS, evaluate_all, evaluate_ood, metrics_for
from tests.metrics.examples import answers, classes, normal, numbers, points

MAKERS = {
    "classes": classes,
    "pixels": lambda batch, **more: classes(batch, 7, 2, 3, **more),
    "answers": lambda batch, **more: answers(batch, 2, **more),
    "numbers": lambda batch, **more: numbers(batch, 2, **more),
    "points": points,
}
SCORING = {"accuracy", "macro_f1", "nll", "brier", "balanced_accuracy", "auroc", "auprc"}
CALIBRATION = {
    "ece",
    "mce",
    "ece_20",
    "mce_20",
    "adaptive_ece",
    "class_conditional_ece",
    "aurc",
    "excess_aurc",
}
DIVERSITY = {"disagreement", "mutual_information"}
POINT = {"rmse", "mae", "ambiguity", "error_correlation"}
GAUSSIAN = {
    *("gaussian_nll", "log_predictive_density", "crps"),
    *("coverage_95", "coverage_gap_95", "width_95", "pinball", "sharpness"),
}

every_kind = pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)


@pytest.mark.parametrize("row", METRICS.values(), ids=METRICS)
def test_a_row_tells_all_that_a_report_needs(row):
    assert METRICS[row.name] is row
    assert row.range[0] < row.range[1]
    assert row.direction in ("higher", "lower")
    assert row.title
    assert row.explanation.endswith(".")
    assert ". " not in row.explanation
    assert row.paper or row.name in ("accuracy", "rmse", "mae")
    assert bool(row.kinds) == (row.against != "vanilla")


@every_kind
@settings(deadline=None, max_examples=15)
@given(batch=st.integers(1, 40), members=st.integers(1, 4), seed=st.integers(0, 10**6))
def test_values_are_floats_in_their_range(make, batch, members, seed):
    prediction, target = make(batch, members=members, seed=seed)
    out, _ = make(batch + 1, members=members, seed=seed + 9)
    for name, value in {**evaluate_all(prediction, target), **evaluate_ood(prediction, out)}.items():
        low, high = METRICS[name].range
        assert type(value) is float
        assert math.isnan(value) or low <= value <= high


@pytest.mark.parametrize(
    ("made", "names"),
    [
        (classes(outcomes=5), SCORING | CALIBRATION | DIVERSITY | {"error_correlation"}),
        (classes(outcomes=6), SCORING | CALIBRATION | DIVERSITY | {"error_correlation", "top5"}),
        (classes(members=1), SCORING | CALIBRATION | {"mutual_information"}),
        (classes(9, 3, 2, 2), SCORING | CALIBRATION | DIVERSITY | {"error_correlation", "dice", "iou"}),
        (answers(), SCORING | CALIBRATION | DIVERSITY | {"error_correlation"}),
        (numbers(), POINT | GAUSSIAN),
        (points(), POINT),
    ],
)
def test_each_kind_has_its_metrics(made, names):
    assert {metric.name for metric in metrics_for(made[0])} == names
    assert set(evaluate_all(*made)) == names


@pytest.mark.parametrize(("made", "count"), [(classes(), 16), (answers(), 16), (numbers(), 6), (points(), 3)])
def test_each_kind_has_three_measures_of_each_criterion(made, count):
    names = [metric.name for metric in metrics_for(made[0], "out")]
    assert len(names) == len(set(names)) == count
    assert list(evaluate_ood(made[0], made[0])) == names


@every_kind
def test_all_at_once_is_one_by_one(make):
    prediction, target = make(50)
    out, _ = make(40, seed=5)
    for name, value in evaluate_all(prediction, target).items():
        assert_close(METRICS[name](prediction, target), value, equal_nan=True)
    for name, value in evaluate_ood(prediction, out).items():
        assert_close(METRICS[name](prediction, out), value)


@every_kind
def test_the_order_of_members_and_of_samples_does_not_matter(make):
    prediction, target = make(50)
    order, members = torch.randperm(50, generator=torch.Generator().manual_seed(0)), torch.tensor([2, 0, 1])
    mixed = prediction[order]
    fields = {name: values[members] for name, values in vars(mixed).items() if name in mixed.__match_args__}
    assert_close(evaluate_all(type(mixed)(**fields), target[order]), evaluate_all(prediction, target))


def test_single_precision_has_the_same_values():
    prediction, target = classes(200)
    single = Categorical().prediction(prediction.members.float(), prediction.weights.float())
    assert_close(evaluate_all(single, target), evaluate_all(prediction, target), rtol=1e-5, atol=1e-6)


def test_gradients_do_not_hinder():
    logits = normal(3, 20, 4).requires_grad_()
    prediction = Categorical().prediction(logits)
    target = prediction.labels
    assert set(evaluate_all(prediction, target)) == set(evaluate_all(*classes()))
    assert len(evaluate_ood(prediction, prediction)) == 16


def test_better_predictions_are_on_the_better_side():
    target, truth = torch.arange(400) % 8, normal(400)
    right, noise = torch.nn.functional.one_hot(target, 8), normal(3, 400, 8, seed=1)
    good, bad = (Categorical().prediction(logits) for logits in (6 * right + noise, 4 * noise + 2 * right))
    near, far = Gaussian(precision=100.0), Gaussian(precision=1.0)
    near, far = near.prediction(truth + noise[..., 0] / 9), far.prediction(truth + 3 + noise[..., 0])
    for better, worse, goal in [(good, bad, target), (near, far, truth)]:
        values, others = evaluate_all(better, goal), evaluate_all(worse, goal)
        for name in values.keys() - {"disagreement", "mutual_information", "error_correlation", "ambiguity"}:
            sign = 1 if METRICS[name].direction == "higher" else -1
            assert sign * values[name] > sign * others[name], name
