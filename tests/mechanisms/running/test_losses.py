"""Losses: rows on all samples, or each on its own."""

import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.testing import assert_close

import pluribus as pl
from pluribus.likelihood import Categorical
from pluribus.mechanisms.network.inputs import Inputs
from pluribus.mechanisms.running.losses import Losses
from pluribus.methods import DeepEnsembles
from tests.verify import modes

X, Y = torch.randn(6, 3), torch.tensor([0, 1, 1, 0, 1, 0])


def test_a_row_is_measured_on_the_samples_it_sees():
    ensemble = pl.convert(nn.Linear(3, 2), DeepEnsembles(2)).eval()
    parts = [torch.tensor([0, 1, 2, 3]), torch.tensor([4, 5])]
    outputs = ensemble(X)
    expected = torch.stack([cross_entropy(outputs[row, part], Y[part]) for row, part in enumerate(parts)])
    given = (ensemble.members, [0, 1], Inputs.of(X), Y)
    assert_close(Losses(Categorical(), None).of_parts(*given, parts, modes(ensemble)), expected)
    assert_close(Losses(Categorical(), cross_entropy).of_parts(*given, parts, modes(ensemble)), expected)


def test_all_samples_count_alike():
    ensemble = pl.convert(nn.Linear(3, 2), DeepEnsembles(2)).eval()
    expected = torch.stack([cross_entropy(output, Y) for output in ensemble(X)])
    given = (ensemble.members, [0, 1], Inputs.of(X), Y)
    assert_close(Losses(Categorical(), None).of_batch(*given, modes(ensemble)), expected)
    assert_close(Losses(Categorical(), cross_entropy).of_batch(*given, modes(ensemble)), expected)
