"""Losses: rows on all samples, or each on its own."""

from functools import partial

import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy
from torch.testing import assert_close

import pluribus as pl
from pluribus.errors import InputError
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


def weighted(criterion=None, weights=None, parts=None, y=Y):
    ensemble = pl.convert(nn.Linear(3, 2), DeepEnsembles(2), seed=1).eval()
    losses = Losses(Categorical(), criterion)
    given = (ensemble.members, [0, 1], Inputs.of(X), y)
    if parts is None:
        return losses.of_batch(*given, modes(ensemble), weights)
    return losses.of_parts(*given, parts, modes(ensemble), weights)


def test_a_weight_of_two_counts_a_sample_twice_and_of_zero_never():
    weights = torch.tensor([2.0, 1, 0, 0, 1, 0])
    twice = torch.tensor([0, 0, 1, 4])
    expected = weighted(parts=[twice, twice])
    assert_close(weighted(weights=weights), expected)
    assert_close(weighted(weights=3 * weights), expected)
    assert_close(weighted(partial(cross_entropy, reduction="none"), weights), expected)
    everything = [torch.arange(6), torch.arange(6)]
    assert_close(weighted(weights=weights, parts=everything), expected)
    assert_close(weighted(weights=torch.zeros(6)), torch.zeros(2))


def test_class_weights_agree_with_torch():
    by_class = torch.tensor([0.3, 1.7])
    found = weighted(weights=by_class[Y])
    assert_close(found, weighted(partial(cross_entropy, weight=by_class)))


def test_an_averaging_criterion_takes_no_weights():
    with pytest.raises(InputError, match=r"one value per sample.* got an average. Use reduction='none'"):
        weighted(cross_entropy, torch.ones(6))


def test_ensemble_loss_takes_weights_and_probabilities():
    ensemble = pl.convert(nn.Linear(3, 2), DeepEnsembles(2))
    soft = nn.functional.one_hot(Y, 2).float()
    weights = torch.tensor([1.0, 0, 0, 0, 0, 0])
    assert_close(ensemble.loss(X, soft, weights=weights), ensemble.loss(X[:1], Y[:1]))
