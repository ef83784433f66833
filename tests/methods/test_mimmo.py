"""MIMMO: all depths, weighted by learnt preferences."""

import torch
from torch.nn.functional import cross_entropy
from torch.testing import assert_close

import pluribus as pl
from pluribus.methods import MIMMO
from tests.cases import blocks, seeded

X, Y = torch.randn(8, 6, generator=seeded(0)), torch.arange(8) % 2


def test_the_objective_is_the_exact_expectation_and_a_divergence():
    ensemble = pl.convert(blocks(3), MIMMO(inputs=1), example=X[:2]).train()
    ensemble.members.index.logits.data.normal_()
    theta = ensemble.members.index.logits.softmax(1)
    losses = torch.stack([cross_entropy(one, Y) for one in ensemble(X)])
    divergence = (theta * (3 * theta).log()).sum()
    assert_close(ensemble.loss(X, Y, dataset_size=50), (theta[0] * losses).sum() + divergence / 50)


def test_predictions_are_weighted_by_the_preferences():
    ensemble = pl.convert(blocks(3), MIMMO(inputs=2), example=X[:2]).eval()
    ensemble.members.index.logits.data.normal_()
    assert_close(ensemble.weights, ensemble.members.index.logits.detach().softmax(1).flatten() / 2)
    mean = (ensemble(X).softmax(-1) * ensemble.weights[:, None, None]).sum(0)
    assert_close(ensemble.predict(X).probabilities, mean)


def test_every_logit_gets_a_gradient():
    ensemble = pl.convert(blocks(3), MIMMO(inputs=2), example=X[:2]).train()
    ensemble.loss(X, Y).backward()
    assert (ensemble.members.index.logits.grad != 0).all()


def test_files_of_version_2_keep_independent_inputs_and_learnt_weights():
    written = MIMMO().to_dict() | {"version": 2}
    del written["input_repetition"], written["fit_weights"]
    assert pl.Method.from_dict(written) == MIMMO(input_repetition=0.0, fit_weights=False)
