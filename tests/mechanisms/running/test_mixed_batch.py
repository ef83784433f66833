"""MixedBatch: samples of several rows share one training batch."""

import torch
from torch import nn
from torch.testing import assert_close

import pluribus as pl
from pluribus.mechanisms.running.looped import Looped
from pluribus.mechanisms.running.mixed_batch import MixedBatch
from pluribus.methods import DeepEnsembles, Masksembles
from tests.verify import job

x, y = torch.randn(4, 6), torch.randn(3, 6)


def network():
    return nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 2))


def test_masked_rows_share_a_batch_and_agree_with_the_loop():
    ensemble = pl.convert(network(), Masksembles(members=2), example=x).train()
    apart = job(ensemble, x, y)
    assert MixedBatch().why_not(apart) == ""
    assert_close(MixedBatch().run(apart), Looped().run(apart))


def test_only_training_mixes_rows():
    ensemble = pl.convert(network(), Masksembles(members=2), example=x).eval()
    assert MixedBatch().why_not(job(ensemble, x)) == "only in train mode"
    deep = pl.convert(network(), DeepEnsembles(members=2)).train()
    assert MixedBatch().why_not(job(deep, x)) == "members need weights of their own"
