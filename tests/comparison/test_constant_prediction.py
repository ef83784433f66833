"""Constant predictions: the loss is that of the best one, in closed form."""

import pytest
import torch
from torch import nn

import pluribus as pl
from pluribus import methods
from pluribus.comparison.constant_prediction import constant_loss


@pytest.mark.parametrize(
    ("likelihood", "target", "expected"),
    [
        ("categorical", torch.tensor([0, 1, 1, 1]), 0.5623351),
        ("bernoulli", torch.tensor([0.0, 1.0, 1.0, 1.0]), 0.5623351),
        ("point", torch.tensor([[0.0], [2.0]]), 1.0),
        ("gaussian", torch.tensor([[0.0], [2.0]]), 1.4189385),
    ],
)
def test_constants_have_the_loss_of_the_best_constant(likelihood, target, expected):
    found = pl.convert(nn.Linear(2, 2), methods.Single(), likelihood)
    assert constant_loss(found, target) == pytest.approx(expected)
