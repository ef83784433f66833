"""Loops of other libraries read batches, score predictions and complete an ensemble as `train` does."""

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

import pluribus as pl
from pluribus.methods import BatchEnsemble, DeepEnsembles
from pluribus.training.other_loops import clip_separately, complete, read_batch, score, warn_of_orders


@pytest.fixture
def ensemble():
    torch.manual_seed(0)
    return pl.convert(torch.nn.Linear(3, 2), DeepEnsembles(members=2))


def test_batches_of_every_form_are_read(ensemble):
    x, y = torch.ones(4, 3), torch.arange(4) % 2
    for raw in ((x, y), [x, y], {"input": x, "labels": y, "name": "left out"}):
        batch = read_batch(ensemble, raw)
        assert torch.equal(next(batch.inputs.tensors()), x)
        assert torch.equal(batch.target, y)


def test_score_suits_the_likelihood(ensemble):
    x = torch.ones(4, 3)
    name, value = score(ensemble, ensemble.predict(x), torch.zeros(4, dtype=torch.long))
    assert name == "nll"
    assert value.ndim == 0
    point = pl.convert(torch.nn.Linear(3, 1), DeepEnsembles(members=2), "point")
    name, value = score(point, point.predict(x), torch.zeros(4))
    assert name == "rmse"
    torch.testing.assert_close(value, point.predict(x).mean.square().mean().sqrt())


def test_orders_of_members_are_logged(ensemble, caplog):
    warn_of_orders(ensemble)
    assert not caplog.text
    warn_of_orders(pl.convert(torch.nn.Linear(3, 2), DeepEnsembles(members=2, start="copy")))
    assert "batches of 2 times the size" in caplog.text


def test_members_that_share_weights_are_not_clipped_apart(ensemble):
    assert clip_separately(ensemble, 1.0)
    assert not clip_separately(pl.convert(torch.nn.Linear(3, 2), BatchEnsemble(members=2)), 1.0)


def test_complete_finishes_and_calibrates_one_process_alone(ensemble, monkeypatch, caplog):
    finished = []
    monkeypatch.setattr(ensemble, "finish", finished.append)
    loader = DataLoader(TensorDataset(torch.randn(20, 3), torch.arange(20) % 2), batch_size=8)
    complete(ensemble, loader, loader, processes=2)
    assert finished == []
    assert "2 processes" in caplog.text
    complete(ensemble, loader, loader, processes=1)
    assert finished == [loader]
    assert ensemble.calibration.samples == 20


def test_complete_survives_data_that_cannot_calibrate(ensemble, caplog):
    few = TensorDataset(torch.randn(2, 3), torch.arange(2))
    complete(ensemble, [], few, processes=1)
    assert "not calibrated" in caplog.text
    assert ensemble.calibration is None
