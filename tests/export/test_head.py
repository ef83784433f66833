"""Pooled: the inputs of the network in, the summaries of the prediction out."""

import gc
import inspect
from dataclasses import dataclass

import pytest
import torch
from torch.testing import assert_close

import pluribus as pl
from pluribus.calibration_record import Calibration
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


@pytest.mark.parametrize(
    ("likelihood", "score"),
    [
        (Categorical(), "entropy"),
        (Bernoulli(), "mutual_information"),
        (Gaussian(), "variance"),
        (Point(), ""),
    ],
)
def test_calibrated_outputs_are_those_of_predict(likelihood, score):
    threshold = 0.5 if score else None
    fitted = Calibration(2.0, 1.5, level=0.8, quantile=0.4, score=score, threshold=threshold)
    source = linear_source(likelihood, calibration=fitted)
    found = Pooled(source, False, 0.9)(source.example.args[0])
    prediction = source.predict(source.example)
    for name, value in found.items():
        if name in ("lower", "upper"):
            expected = prediction.interval()[name == "upper"]
            assert_close(value, expected, atol=1e-5, rtol=1e-5)
        else:
            expected = prediction.sets if name == "set" else getattr(prediction, name)
            assert_close(value, expected, msg=name)


def test_inputs_have_the_names_of_the_networks_parameters():
    pooled = Pooled(linear_source(), False, 0.9)
    assert list(inspect.signature(pooled.forward).parameters) == ["image"]
    x = torch.ones(2, 4)
    assert_close(pooled(image=x), pooled(x))


def own_likelihood():
    """Return a likelihood of a user; a class of the module would be known by name to all tests."""

    @dataclass(frozen=True)
    class Own(Likelihood):
        def losses(self, outputs, target):
            return outputs

        def prediction(self, outputs, weights=None):
            return Point().prediction(outputs, weights)

    return Own()


def test_a_likelihood_without_an_unchecked_form_is_refused_by_name():
    source = linear_source(own_likelihood())
    with pytest.raises(pl.ExportError, match="Own must have the method `unchecked`"):
        Pooled(source, False, 0.9)
    with pytest.raises(pl.InputError, match="Own must have the method `curvature` for Laplace"):
        source.likelihood.curvature(torch.zeros(2, 3))
    del source
    gc.collect()
