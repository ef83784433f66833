"""Outputs: a name and a meaning for each, and the values of the prediction."""

import torch

from pluribus.export.outputs import meanings, pooled_outputs
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


def test_values_are_those_of_the_prediction():
    prediction = Gaussian().prediction(OUTPUTS)
    found = pooled_outputs(prediction, names(Gaussian(), members=True), 0.9)
    assert torch.equal(found["members"], OUTPUTS)
    assert torch.equal(found["epistemic"], prediction.epistemic)
    assert (found["lower"] < found["mean"]).all()
    assert (found["mean"] < found["upper"]).all()
