"""Predictions of a split: batch by batch, the same as all at once."""

import torch
from torch import nn
from torch.testing import assert_close

import pluribus as pl
from pluribus.data import Split
from pluribus.methods import DeepEnsembles
from pluribus.training import split_prediction
from pluribus.training.split_prediction import predictions, tally_split

X, Y = torch.randn(20, 3), torch.arange(20) % 2


def ensemble():
    return pl.convert(nn.Linear(3, 2), DeepEnsembles(members=2)).eval()


def test_predictions_are_those_of_predict():
    found = ensemble()
    expected = found.predict(X)
    for split in (Split(X, Y), Split(list(zip(X, Y, strict=True)))):
        parts = list(predictions(found, split, chunk=6))
        assert [len(batch) for batch, _ in parts] == [6, 6, 6, 2]
        assert_close(torch.cat([one.members for _, one in parts], 1), expected.members)
        tally = tally_split(found, split, chunk=6, runner=found.freeze())
        assert_close(tally.prediction.members, expected.members)
        assert torch.equal(tally.target, Y)


def test_batches_shrink_where_outputs_are_many(monkeypatch):
    monkeypatch.setattr(split_prediction, "MOST_AT_ONCE", 12)
    sizes = [len(batch) for batch, _ in predictions(ensemble(), Split(X, Y))]
    assert max(sizes) == 3  # two members with two outputs each


def test_an_empty_split_has_no_predictions():
    assert list(predictions(ensemble(), Split(X[:0], Y[:0]))) == []
