"""Shares: the objective and the mean gradient of several processes are those of one.

The processes run here one after the other, several times: what each sends is recorded, and the next pass
receives the sums.
"""

import copy

import pytest
import torch
from torch import nn
from torch.testing import assert_close

import pluribus as pl
from pluribus.mechanisms.running.share import OneOfSeveral
from pluribus.methods import (
    ECMP,
    EMP,
    MIMO,
    SAE,
    BatchEnsemble,
    DeepEnsembles,
    Masksembles,
    PackedEnsembles,
    Single,
)

PROCESSES = 2


class Tokens(nn.Module):
    """Reads `[batch, tokens, 3]`. Exits of tokens have no batch statistics, other than those of vectors."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 8), nn.Tanh())
        self.head = nn.Linear(8, 4)

    def forward(self, x):
        return self.head(self.body(x).mean(1))


def network():
    torch.manual_seed(0)
    return Tokens()


def gradients(ensemble):
    return {name: p.grad for name, p in ensemble.named_parameters() if p.grad is not None}


class Exchange:
    """Stand for `torch.distributed.all_reduce`: return the sum of what all sent in the last pass."""

    def __init__(self):
        self.last, self.sent = [], []

    def __call__(self, tensor):
        own = self.sent[-1]
        own.append(tensor.clone())
        if self.last:
            tensor.copy_(sum(values[len(own) - 1] for values in self.last))


def divided(ensemble, batch, taken, monkeypatch, **options):
    """Return the loss of each process and the mean of their gradients."""
    exchange = Exchange()
    monkeypatch.setattr(torch.distributed, "all_reduce", exchange)
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    # The second exchange depends on the first, so that the sums of both are right in the third pass.
    for _ in range(3):
        exchange.last, exchange.sent = exchange.sent, []
        losses, found = [], []
        for rank in range(PROCESSES):
            exchange.sent.append([])
            own = copy.deepcopy(ensemble)
            mine = slice(rank, None, PROCESSES) if taken else slice(None)
            x, y, weights = [None if one is None else one[mine] for one in batch]
            torch.manual_seed(1)
            share = OneOfSeveral(rank, PROCESSES, taken)
            loss = own.loss(x, y, weights=weights, share=share, **options)
            loss.backward()
            losses.append(loss.detach())
            found.append(gradients(own))
    assert found[0].keys() == found[1].keys()
    return losses, {name: sum(one[name] for one in found) / PROCESSES for name in found[0]}


METHODS = [
    Single(),
    DeepEnsembles(members=2),
    DeepEnsembles(members=2, start="copy"),
    PackedEnsembles(members=2, alpha=2),
    Masksembles(members=2),
    BatchEnsemble(members=2),
    EMP(decay=0.1, train_draws=2, noise=0.1),
    EMP(decay=0.1, divide=True, train_draws=2),
    ECMP(decay=0.1),
    SAE(inputs=2, exits=2),
    MIMO(inputs=2),
]


WEIGHTED = [(method, True) for method in METHODS if type(method) in (DeepEnsembles, Masksembles)]


@pytest.mark.parametrize(
    ("method", "weighted"), [*((method, False) for method in METHODS), *WEIGHTED], ids=str
)
def test_processes_have_the_objective_and_the_gradient_of_one(method, weighted, monkeypatch):
    ensemble = pl.convert(network(), method, example=torch.zeros(2, 5, 3)).double().train()
    # An odd batch: shares differ in size, and some members have fewer samples than there are processes.
    x, y = torch.randn(7, 5, 3, dtype=torch.float64), torch.arange(7) % 4
    weights = torch.rand(7, dtype=torch.float64) if weighted else None
    options = {"progress": 0.5, "dataset_size": 100}
    alone = copy.deepcopy(ensemble)
    torch.manual_seed(1)
    expected = alone.loss(x, y, weights=weights, **options)
    expected.backward()
    losses, mean = divided(ensemble, (x, y, weights), False, monkeypatch, **options)
    assert_close(losses, [expected.detach()] * PROCESSES)
    assert_close(mean, gradients(alone))


@pytest.mark.parametrize("weighted", [False, True])
def test_samples_may_be_divided_before_where_all_members_see_all(weighted, monkeypatch):
    ensemble = pl.convert(network(), EMP(decay=0.1), example=torch.zeros(2, 5, 3)).double().train()
    x, y = torch.randn(7, 5, 3, dtype=torch.float64), torch.arange(7) % 4
    weights = torch.rand(7, dtype=torch.float64) if weighted else None
    alone = copy.deepcopy(ensemble)
    torch.manual_seed(1)
    expected = alone.loss(x, y, weights=weights)
    expected.backward()
    losses, mean = divided(ensemble, (x, y, weights), True, monkeypatch)
    assert_close(losses, [expected.detach()] * PROCESSES)
    assert_close(mean, gradients(alone))


def test_a_divided_batch_is_refused_where_members_see_parts(monkeypatch):
    monkeypatch.setattr(torch.distributed, "all_reduce", lambda tensor: None)
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    ensemble = pl.convert(network(), Masksembles(members=2), example=torch.zeros(2, 5, 3)).train()
    with pytest.raises(pl.InputError, match="need the whole batch in every process"):
        ensemble.loss(torch.zeros(4, 5, 3), torch.zeros(4).long(), share=OneOfSeveral(0, 2, taken=True))


class Neighbours(nn.Module):
    """Every sample is the mean of two, which `edges` names."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 4)

    def forward(self, x, edges):
        return self.layer(x[edges].mean(1))


def test_samples_that_depend_on_one_another_are_not_divided():
    x, edges = torch.randn(4, 3), torch.tensor([[0, 1], [1, 2], [2, 3], [3, 0]])
    ensemble = pl.convert(Neighbours(), Single(), example=(x, edges)).train()
    with pytest.raises(pl.InputError, match="must not depend on one another where several processes"):
        ensemble.loss((x, edges), torch.zeros(4).long(), share=OneOfSeveral(0, 2))


def test_what_is_no_share_is_refused():
    ensemble = pl.convert(network(), Single()).train()
    with pytest.raises(pl.InputError, match=r"share must be a Share of the batch, got 0\.5"):
        ensemble.loss(torch.zeros(4, 5, 3), torch.zeros(4).long(), share=0.5)


def test_a_share_without_processes_is_refused():
    ensemble = pl.convert(network(), Single()).train()
    with pytest.raises(pl.InputError, match="got no process group"):
        ensemble.loss(torch.zeros(4, 5, 3), torch.zeros(4).long(), share=OneOfSeveral(0, 2))
