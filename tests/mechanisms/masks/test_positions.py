"""Positions: their union, their rounding, and at least one of them."""

import torch

from pluribus.mechanisms.masks.positions import Positions, at_least_one, rounded_up, union


def test_widths_are_rounded_up():
    kept = Positions(1, torch.arange(64) < 33)
    assert rounded_up(kept, 8).count == 40
    assert rounded_up(kept, 1).count == 33
    assert rounded_up(Positions(1, torch.arange(64) < 31), 8).count == 31
    assert rounded_up(Positions(1, torch.arange(35) < 34), 8).count == 35
    assert rounded_up(None, 8) is None


def test_positions_along_different_axes_make_the_whole():
    one, other = Positions(1, torch.tensor([True, False])), Positions(2, torch.tensor([True, False]))
    assert union(one, other) is None
    assert union(one, Positions(1, torch.tensor([False, True]))).count == 2


def test_no_position_becomes_the_first():
    none = Positions(1, torch.zeros(3, dtype=torch.bool))
    assert at_least_one(none).chosen.tolist() == [True, False, False]
    assert at_least_one(None) is None


def test_index_lists_the_positions():
    assert Positions(0, torch.tensor([True, False, True])).index(torch.device("cpu")).tolist() == [0, 2]
