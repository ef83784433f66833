"""Pooled: the inputs of the network in, the summaries of the prediction out."""

import inspect
from dataclasses import dataclass

import pytest
import torch
from torch.testing import assert_close

import pluribus as pl
from pluribus.export.head import Pooled
from pluribus.likelihood import Bernoulli, Categorical, Gaussian, Likelihood, Point
from tests.export.sources import linear_source


@pytest.mark.parametrize(
    "likelihood", [Categorical(), Bernoulli(), Gaussian(), Gaussian(precision=4.0), Point()]
)
def test_outputs_are_those_of_predict_with_member_weights(likelihood):
    source = linear_source(likelihood)
    pooled, x = Pooled(source, True, 0.9), source.example.args[0]
    prediction = source.predict(source.example)
    found = pooled(x)
    assert list(found) == list(pooled.outputs)
    for name in set(found) - {"lower", "upper"}:
        assert_close(found[name], getattr(prediction, name), msg=name)


def test_inputs_have_the_names_of_the_networks_parameters():
    pooled = Pooled(linear_source(), False, 0.9)
    assert list(inspect.signature(pooled.forward).parameters) == ["image"]
    x = torch.ones(2, 4)
    assert_close(pooled(image=x), pooled(x))


@dataclass(frozen=True)
class Own(Likelihood):
    def losses(self, outputs, target):
        return outputs

    def curvature(self, outputs):
        return outputs

    def prediction(self, outputs, weights=None):
        return Point().prediction(outputs, weights)


def test_a_likelihood_without_an_unchecked_form_is_refused_by_name():
    with pytest.raises(pl.ExportError, match="Own must have the method `unchecked`"):
        Pooled(linear_source(Own()), False, 0.9)
