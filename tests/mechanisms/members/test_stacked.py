"""Stacked: member m has entry m of what is not shared."""

import torch
from torch import nn
from torch.testing import assert_close

from pluribus.mechanisms.members.stacked import Stacked
from pluribus.mechanisms.network.network import Network


def made():
    return Stacked.of_network(Network(nn.Linear(3, 2)), {"weight": torch.randn(4, 2, 3)})


def test_tensors_without_a_key_are_shared():
    tensors = made()
    assert tensors.keys(2) == {"weight": 2}
    rows = list(tensors.of([2, 0]))
    assert rows[0]["bias"] is rows[1]["bias"]
    assert_close(rows[0]["weight"], tensors.own.weight[2])


def test_all_rows_in_order_are_a_stack_without_a_copy():
    tensors = made()
    assert tensors.stacks(range(4))
    assert not tensors.stacks([0, 1])
    assert not tensors.stacks([1, 0, 2, 3])
    assert tensors.stacked()["weight"] is tensors.own.weight


def test_kept_rows_are_renumbered():
    tensors = made()
    small, rows = tensors.keep([3, 1])
    assert list(rows) == [0, 1]
    assert_close(small.own.weight.data, tensors.own.weight.data[[3, 1]])


def test_without_tensors_of_their_own_rows_are_anything():
    tensors = Stacked.of_network(Network(nn.Linear(3, 2)), {})
    assert tensors.keys((0, 1)) == {}
    assert set(tensors.of_one("seed")) == {"weight", "bias"}
    assert tensors.keep([(0, 1)])[1] == [(0, 1)]
    assert not tensors.stacks([0])


def test_samples_of_several_rows_have_an_entry_each():
    tensors = made()
    mixed = tensors.mixed([2, 0], [1, 2])
    assert_close(mixed["weight"], tensors.own.weight[[2, 0, 0]])
    assert tensors.why_not_mixed([0])
