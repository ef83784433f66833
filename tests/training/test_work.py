"""The multiply-adds of training, counted against what the layers have."""

import pytest
import torch
from torch import nn

import pluribus as pl
from pluribus.data import two_moons
from pluribus.methods import MIMO, BatchEnsemble, DeepEnsembles, Single
from pluribus.training import Training
from pluribus.training.work import train_multiply_adds

ONE = 2 * 16 + 16 * 2
"""Multiply-adds of the network for one sample."""


@pytest.mark.parametrize(
    ("method", "factor"),
    [(Single(), 1), (DeepEnsembles(members=3), 3), (BatchEnsemble(members=4), 1)],
    ids=str,
)
def test_training_counts_what_its_passes_multiply(method, factor):
    task = two_moons(train=120)
    network = nn.Sequential(nn.Linear(2, 16), nn.ReLU(), nn.Linear(16, 2))
    ensemble = pl.convert(network, method).eval()
    ensemble.calibrate(task)
    before = {name: value.clone() for name, value in ensemble.state_dict().items()}
    found = train_multiply_adds(ensemble, task, Training(batch=30), steps=8)
    assert found == pytest.approx(2 * 120 * ONE * factor, rel=0.01)
    assert not ensemble.training
    assert ensemble.calibration is not None
    torch.testing.assert_close(dict(ensemble.state_dict()), before, rtol=0, atol=0)


def test_accumulated_and_repeated_batches_are_counted():
    task = two_moons(train=120)
    network = nn.Sequential(nn.Linear(2, 16), nn.ReLU(), nn.Linear(16, 2))
    ensemble = pl.convert(network, MIMO(inputs=2, batch_repetition=3), example=torch.zeros(2, 2))
    found = train_multiply_adds(ensemble, task, Training(batch=20, accumulate=2), steps=3)
    assert found == pytest.approx(120 * 3 * (4 * 16 + 16 * 4))
