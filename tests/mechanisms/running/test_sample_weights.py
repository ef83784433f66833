"""Weights of samples and positions: the mean they make, and refusals."""

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.testing import assert_close

import pluribus as pl
from pluribus.errors import InputError
from pluribus.likelihood import Categorical
from pluribus.mechanisms.running.sample_weights import weighted_mean
from pluribus.methods import DeepEnsembles

X, Y = torch.randn(6, 3), torch.tensor([0, 1, 1, 0, 1, 0])


def test_weights_of_positions_sum_over_the_whole_batch():
    logits, y = torch.randn(2, 5, 4, 7, dtype=torch.float64), torch.randint(0, 4, (5, 7))
    by_class = torch.tensor([0.2, 1.0, 3.0, 0.0], dtype=torch.float64)
    each = Categorical().losses(logits, y, by_class[y])
    expected = torch.stack([cross_entropy(one, y, weight=by_class) for one in logits])
    assert_close(weighted_mean(each, by_class[y]), expected)


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ([1.0] * 6, "weights must be a tensor for 6 samples.* got list"),
        (torch.ones(5), r"got \(5,\)"),
        (torch.full((6,), -1.0), "at least 0, got -1"),
        (torch.full((6,), torch.nan), "weights must be finite"),
    ],
)
def test_wrong_weights_are_refused(weights, message):
    ensemble = pl.convert(nn.Linear(3, 2), DeepEnsembles(2))
    with pytest.raises(InputError, match=message):
        ensemble.loss(X, Y, weights=weights)
