"""Looped: one row after the other; statistics that all share count a batch once."""

import torch
from torch import nn
from torch.testing import assert_close

import pluribus as pl
from pluribus.mechanisms.running.looped import Looped
from pluribus.methods import DeepEnsembles, EarlyExit, LayerEnsembles
from tests.cases import blocks
from tests.verify import job

x = torch.randn(4, 6)


def test_rows_are_their_members():
    ensemble = pl.convert(blocks(3), DeepEnsembles(members=3)).eval()
    assert_close(Looped().run(job(ensemble, x)), [ensemble.member(row)(x) for row in range(3)])


def test_shared_statistics_count_one_batch_once():
    model = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.Linear(8, 2))
    ensemble = pl.convert(
        model, LayerEnsembles(options=2, train_draws=3, prior_scale=0.0, statistics="shared")
    ).train()
    Looped().run(job(ensemble, x))
    assert ensemble.members.tensors.shared.get_buffer("1.num_batches_tracked") == 1
    Looped().run(job(ensemble, x, x, x))
    assert ensemble.members.tensors.shared.get_buffer("1.num_batches_tracked") == 4


def test_exits_are_not_looped():
    ensemble = pl.convert(blocks(3), EarlyExit(), example=x)
    assert Looped().why_not(job(ensemble, x)) == "one run gives all rows"
