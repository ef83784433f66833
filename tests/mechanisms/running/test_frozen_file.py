"""Files of frozen ensembles: small, and only for graphs."""

import pytest
import torch
from torch import nn

import pluribus as pl
from pluribus.mechanisms.running.frozen_file import FEWEST_BITS, _packed
from pluribus.methods import DeepEnsembles, MCDropout
from tests.cases import case_named


def size(folder):
    return (folder / "weights.safetensors").stat().st_size


def test_weights_that_members_share_are_stored_once_and_masks_as_bits(tmp_path):
    network = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
    ensemble = pl.convert(network, MCDropout(draws=16), example=torch.zeros(2, 64))
    ensemble.save(tmp_path / "ensemble")
    ensemble.freeze().save(tmp_path / "frozen")
    bits = 16 * 2 * 64 / 8
    assert size(tmp_path / "frozen") < 1.1 * size(tmp_path / "ensemble") + bits


def test_looped_members_cannot_be_saved(tmp_path):
    case = case_named("data_dependent")
    frozen = pl.convert(case.model(), DeepEnsembles(members=2), example=case.inputs()).freeze()
    with pytest.raises(pl.InputError, match="members that are looped"):
        frozen.save(tmp_path / "frozen")
    assert not (tmp_path / "frozen").exists()


def test_masks_alone_are_bits():
    mask = (torch.rand(FEWEST_BITS) > 0.5).float() * 2
    mask[:2] = torch.tensor([0.0, 2.0])
    assert _packed(mask, parameter=False)[0].dtype == torch.uint8
    for other, parameter in ((mask, True), (mask[:9], False), (torch.rand(FEWEST_BITS), False)):
        assert _packed(other, parameter)[0] is other
