"""Label smoothing against torch's own."""

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch.testing import assert_close

import pluribus as pl
from pluribus.data import Split, Task, two_moons
from pluribus.training.smoothing import check_smoothing, smooth_labels


@pytest.mark.parametrize("shape", [(6, 3), (6, 3, 4)], ids=str)
def test_smoothed_classes_give_the_loss_of_torch(shape):
    logits = torch.randn(shape)
    y = torch.randint(3, (shape[0], *shape[2:]))
    found = F.cross_entropy(logits, smooth_labels(y, 3, 0.2))
    assert_close(found, F.cross_entropy(logits, y, label_smoothing=0.2))


def test_smoothed_labels_move_towards_one_half():
    assert_close(smooth_labels(torch.tensor([0.0, 1.0]), None, 0.2), torch.tensor([0.1, 0.9]))


def test_a_share_of_zero_changes_nothing():
    y = torch.tensor([0, 1])
    assert smooth_labels(y, 2, 0.0) is y


def test_numbers_cannot_be_smoothed():
    split = Split(torch.zeros(2, 1), torch.zeros(2, 1))
    task = Task("numbers", split, split, split, likelihood=pl.Point())
    check_smoothing(task, 0.0)
    with pytest.raises(pl.SettingError, match="needs classes or labels, got Point"):
        check_smoothing(task, 0.1)


def test_ignored_positions_cannot_be_smoothed():
    task = two_moons(train=20)
    check_smoothing(task, 0.1)
    x, y = torch.zeros(2, 2), torch.tensor([[0, -100], [1, 0]])
    with pytest.raises(pl.SettingError, match="a class at every position"):
        check_smoothing(replace(task, train=Split(x, y)), 0.1)
