"""Predicting: parts are joined, and inputs are blamed for outputs that are not finite."""

import pytest
import torch
from torch.testing import assert_close

import pluribus as pl
from pluribus.likelihood import Point
from pluribus.mechanisms.network.inputs import Inputs
from pluribus.mechanisms.running.predicting import predict_parts


def predict(inputs):
    return Point().prediction(inputs.args[0][None] * 2)


def test_parts_are_joined_in_their_order():
    x = torch.randn(7, 2)
    batches = [Inputs((x[:4],), {}), Inputs((x[4:],), {})]
    for total in (None, 7):
        assert_close(predict_parts(batches, predict, total).mean, 2 * x)


def test_no_batch_and_inputs_that_are_not_finite_are_refused():
    with pytest.raises(pl.InputError, match="at least one batch"):
        predict_parts([], predict)
    with pytest.raises(pl.InputError, match="inputs must be finite"):
        predict_parts([Inputs((torch.tensor([[1.0], [torch.nan]]),), {})], predict)
