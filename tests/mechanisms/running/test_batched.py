"""Batched: small networks run with one operator for all members."""

import torch
from torch import nn
from torch.testing import assert_close

import pluribus as pl
from pluribus.mechanisms.running.batched import STACKED_ROWS, Batched
from pluribus.mechanisms.running.looped import Looped
from pluribus.methods import BatchEnsemble, DeepEnsembles, MCDropout
from tests.verify import job

x = torch.randn(4, 6)


class Skipping(nn.Module):
    """No chain of layers."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(6, 6), nn.Linear(6, 2)

    def forward(self, x):
        return self.last(self.first(x) + x)


def test_a_chain_and_code_under_vmap_agree_with_the_loop():
    for model in (nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 2)), Skipping()):
        for method in (DeepEnsembles(members=STACKED_ROWS), BatchEnsemble(members=STACKED_ROWS)):
            rows = job(pl.convert(model, method).eval(), x)
            assert Batched().why_not(rows) == ""
            assert_close(Batched().run(rows), torch.stack(Looped().run(rows)))


def test_reasons_against_stacking_are_told():
    few = pl.convert(Skipping(), DeepEnsembles(members=2))
    assert "fewer than" in Batched().why_not(job(few, x))
    many = pl.convert(nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8)), DeepEnsembles(members=9))
    assert Batched().why_not(job(many, x)) == "1 is a BatchNorm1d"
    random = pl.convert(Skipping(), MCDropout(draws=9), example=x).eval()
    assert Batched().why_not(job(random, x)) == "rows are no stack of tensors"
    some = pl.convert(Skipping(), DeepEnsembles(members=10))
    assert Batched().why_not(job(some, x, rows=range(9))) == "rows are no stack of tensors"
    large = pl.convert(Skipping(), DeepEnsembles(members=9))
    assert "large" in Batched().why_not(job(large, torch.zeros(1, 6).expand(10_000_000, 6)))


def test_batches_of_their_own_need_a_chain():
    ensemble = pl.convert(Skipping(), DeepEnsembles(members=9)).train()
    assert "no chain" in Batched().why_not(job(ensemble, *[x] * 9))
