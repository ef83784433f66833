"""Rows: what they suit, what they refuse by name."""

import pytest
import torch

from pluribus.errors import InputError
from pluribus.metrics import METRICS, Metric
from pluribus.metrics.metric import sizes
from pluribus.prediction import ContinuousPrediction, DiscretePrediction
from tests.metrics.examples import answers, classes, numbers, points


def row(**settings):
    return Metric("m", lambda prediction, other: 7.0, "higher", (0, 1), "M", "It is seven.", **settings)


def test_a_metric_calls_its_function():
    assert row(kinds=(ContinuousPrediction,))(*points()) == 7.0


def test_a_metric_of_other_numbers_takes_them_as_they_are():
    assert row(against="vanilla")("model", "vanilla") == 7.0


def test_sizes_are_members_and_outcomes():
    assert sizes(classes(outcomes=5, members=2)[0]) == {"members": 2, "outcomes": 5}
    assert sizes(answers(9, 5)[0]) == {"members": 3, "outcomes": 2}
    assert sizes(numbers()[0]) == {"members": 3}


@pytest.mark.parametrize(
    ("metric", "suiting", "other"),
    [
        (row(kinds=(DiscretePrediction,)), answers(), points()),
        (row(kinds=(DiscretePrediction, ContinuousPrediction), members=4), points(members=4), points()),
        (row(kinds=(DiscretePrediction,), outcomes=3), classes(outcomes=3), answers()),
        (row(kinds=(ContinuousPrediction,), outcomes=3), numbers(), classes()),
    ],
)
def test_a_metric_suits_kinds_members_and_outcomes(metric, suiting, other):
    assert metric.suits(suiting[0])
    assert not metric.suits(other[0])


@pytest.mark.parametrize(
    ("name", "made", "message"),
    [
        ("accuracy", numbers(), "accuracy needs DiscretePrediction, got GaussianPrediction, members=3"),
        ("crps", points(), "crps needs GaussianPrediction, got PointPrediction, members=3"),
        ("top5", classes(), "at least 6 outcomes, got CategoricalPrediction, members=3, outcomes=4"),
        ("nll", (torch.zeros(3, 2), torch.zeros(3)), "nll needs DiscretePrediction, got Tensor"),
        ("error_correlation", points(members=1), "at least 2 members, got PointPrediction, members=1"),
    ],
)
def test_a_prediction_that_does_not_suit_is_refused_by_name(name, made, message):
    with pytest.raises(InputError, match=message + r"\. Use metrics_for"):
        METRICS[name](*made)


@pytest.mark.parametrize("out", [answers()[0], torch.zeros(3)])
def test_two_predictions_must_be_of_one_kind(out):
    with pytest.raises(
        InputError, match="auroc_entropy compares two predictions of one kind, got Categorical"
    ):
        METRICS["auroc_entropy"](classes()[0], out)
