"""Outputs: a name and a meaning for each, and the values of the prediction."""

import torch

from pluribus.calibration_record import Calibration
from pluribus.export.outputs import level_of, meanings, pooled_outputs
from pluribus.likelihood import Bernoulli, Categorical, Gaussian, Point

CLASSES = ["probabilities", "labels", "confidence", "entropy", "expected_entropy", "mutual_information"]
OUTPUTS = torch.randn(3, 5, 4, generator=torch.Generator().manual_seed(0))


def names(likelihood, members=False):
    return list(meanings(type(likelihood.prediction(OUTPUTS)), members))


def test_every_likelihood_has_its_outputs():
    assert names(Categorical()) == CLASSES
    assert names(Bernoulli(), members=True) == [*CLASSES, "members"]
    assert names(Gaussian()) == ["mean", "variance", "aleatoric", "epistemic", "lower", "upper"]
    assert names(Point()) == ["mean", "variance", "epistemic"]


def test_calibrated_predictions_have_sets_intervals_and_flags():
    fitted = Calibration(level=0.8, quantile=0.4, score="entropy", threshold=0.5)
    found = [list(meanings(type(one.prediction(OUTPUTS)), False, fitted)) for one in (Categorical(), Point())]
    assert found == [
        [*CLASSES, "set", "ood_score", "flagged"],
        ["mean", "variance", "epistemic", "lower", "upper", "ood_score", "flagged"],
    ]
    assert level_of(fitted, 0.9) == 0.8
    assert level_of(Calibration(temperature=2.0), 0.9) == 0.9


def test_values_are_those_of_the_prediction():
    prediction = Gaussian().prediction(OUTPUTS)
    found = pooled_outputs(prediction, names(Gaussian(), members=True), 0.9)
    assert torch.equal(found["members"], OUTPUTS)
    assert torch.equal(found["epistemic"], prediction.epistemic)
    assert (found["lower"] < found["mean"]).all()
    assert (found["mean"] < found["upper"]).all()
