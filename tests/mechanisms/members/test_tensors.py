"""Tensors: what a class gets by defining `of` and `keys` alone."""

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from pluribus.errors import InputError
from pluribus.mechanisms.members.tensors import Tensors
from pluribus.mechanisms.members.tree import divide
from pluribus.mechanisms.network.network import Network


class Scaled(Tensors):
    """All weights times the row."""

    def of(self, rows):
        shared = self.parts()[0]
        for row in rows:
            yield {name: row * tensor for name, tensor in shared.items()}

    def keys(self, row):
        return dict.fromkeys(self.parts()[0], row)


def made():
    return Scaled(*divide(Network(nn.Linear(3, 2)), {}))


def test_rows_and_tensors_are_kept_as_they_are():
    small, rows = made().keep([3, 1])
    assert rows == [3, 1]
    assert isinstance(small, Scaled)


def test_resolved_tensors_have_no_gradients():
    assert not any(parameter.requires_grad for parameter in made().resolved([1]).parameters())


def test_rows_are_neither_stacked_nor_mixed():
    tensors = made()
    assert not tensors.stacks([0, 1])
    with pytest.raises(InputError, match="no stack"):
        tensors.stacked()
    with pytest.raises(InputError, match="members need weights of their own"):
        tensors.mixed([0, 1], [1, 1])


def test_one_row_is_the_first_of_many():
    tensors = made()
    assert_close(tensors.of_one(2)["weight"], 2 * tensors.shared.weight)
    assert tensors.statistics() == {}
    assert torch.equal(tensors.copied().shared.weight, tensors.shared.weight)
