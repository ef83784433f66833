"""Specialise: what members are cut out for, and what happens where they cannot be."""

import pytest
import torch
from torch import nn
from torch.testing import assert_close

import pluribus as pl
from pluribus.mechanisms.masks.member_constants import MemberConstants
from pluribus.mechanisms.masks.positions import Positions
from tests.cases import case_named
from tests.mechanisms.masks.test_specialise import PLAIN, SLICED, between, images, masked


def test_other_inputs_than_those_it_was_cut_for_are_refused():
    x = images()
    frozen = masked(SLICED["adaptive pool"], x).freeze()
    assert frozen(images(batch=1)).shape == (3, 1, 3, 1, 1)
    with pytest.raises(pl.InputError, match=r"float64\[5, 4, 6, 6\]\), got \(float64\[5, 4, 8, 8\]\)"):
        frozen(images(side=8))


def test_the_first_inputs_seen_are_an_example():
    x = images(side=8)
    ensemble = pl.convert(
        between(nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(12, 3)).double(), PLAIN
    )
    ensemble.eval()(x)
    assert ensemble.freeze()(x).shape == (3, 5, 3)


def test_a_network_that_cannot_be_read_is_looped_and_says_why():
    case = case_named("data_dependent")
    ensemble = pl.convert(case.model(), PLAIN, example=case.inputs()).eval()
    frozen = ensemble.freeze()
    assert "members are looped" in frozen.notes[0]
    assert "cannot be read by torch.export" in frozen.notes[0]
    assert_close(frozen(case.inputs()), ensemble(case.inputs()))


def test_a_member_that_would_compute_something_else_is_not_cut_out(monkeypatch):
    right = MemberConstants._mask

    def wrong(self, step):
        mask = right(self, step)
        return Positions(mask.axis, mask.chosen.roll(1))

    monkeypatch.setattr(MemberConstants, "_mask", wrong)
    x = images()
    ensemble = masked(SLICED["relu"], x)
    frozen = ensemble.freeze()
    assert "outputs differ by" in frozen.notes[0]
    assert_close(frozen(x), ensemble(x))


def test_slices_follow_to_another_precision():
    x = images()
    frozen = masked(SLICED["relu"], x).freeze().float()
    assert frozen(x.float()).dtype == torch.float32
    with pytest.raises(pl.InputError, match="float32"):
        frozen(x)
