"""Pooled: the inputs of the network in, the summaries of the prediction out."""

import inspect
from dataclasses import dataclass, replace

import pytest
import torch
from torch import nn
from torch.testing import assert_close

import pluribus as pl
from pluribus.export.head import Pooled
from pluribus.likelihood import Bernoulli, Categorical, Gaussian, Likelihood, Point
from pluribus.mechanisms.network.inputs import Inputs
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


class Scaled(nn.Module):
    def forward(self, image, shift=None, *, scale=1.0):
        return torch.stack([image * scale, image + shift])


def test_plain_values_are_constants_and_keywords_stay_keywords():
    example = Inputs((torch.ones(2, 3), 4.0), {"scale": 7.0})
    source = replace(
        linear_source(), module=Scaled(), forward=Scaled().forward, example=example, weights=torch.ones(2) / 2
    )
    members = Pooled(source, True, 0.9)(torch.ones(2, 3))["members"]
    assert_close(members, torch.tensor([7.0, 5.0]).reshape(2, 1, 1).expand(2, 2, 3))


@dataclass(frozen=True)
class Own(Likelihood):
    def losses(self, outputs, target):
        return outputs

    def prediction(self, outputs, weights=None):
        return Point().prediction(outputs, weights)


def test_a_likelihood_without_an_unchecked_form_is_refused_by_name():
    with pytest.raises(pl.ExportError, match="Own must have the method `unchecked`"):
        Pooled(linear_source(Own()), False, 0.9)
