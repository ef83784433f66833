"""Draws of samples: those of a share are the ones that the whole batch has at its positions."""

import torch
from torch.testing import assert_close

from pluribus.mechanisms.members.mixture import Mixture, draw_each
from pluribus.mechanisms.members.sample_draws import drawing_for, sample_draws


def test_draws_without_a_share_are_for_all_samples():
    draws = sample_draws(5)
    assert (draws.count, draws.used) == (5, None)
    assert draws.take(torch.arange(5)).tolist() == [0, 1, 2, 3, 4]


def test_a_share_takes_its_positions_of_every_row():
    with drawing_for(5, torch.tensor([1, 3])):
        draws = sample_draws(4)
    assert draws.count == 10
    assert draws.take(torch.arange(10)).tolist() == [1, 3, 6, 8]
    assert sample_draws(4).used is None


def test_tensors_of_a_share_are_those_of_the_whole_batch():
    options, mine = {"weight": torch.randn(3, 4)}, torch.tensor([0, 2, 4])
    for assignment in ("layer", "element"):
        mixture = Mixture(assignment, (0.5, 0.3, 0.2), noise=0.5)
        torch.manual_seed(0)
        whole = draw_each(options, mixture, 5)["weight"].as_subclass(torch.Tensor)
        torch.manual_seed(0)
        with drawing_for(5, mine):
            share = draw_each(options, mixture, 3)["weight"].as_subclass(torch.Tensor)
        assert_close(share, whole[mine])
