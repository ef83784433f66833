"""Drawn: tensors that follow from seeds."""

import torch
from torch import nn
from torch.testing import assert_close

from pluribus.mechanisms.members.drawn import Drawn, normal_numbers
from pluribus.mechanisms.network.network import Network


class Shifted(Drawn):
    """Adds the seed."""

    def draw(self, row):
        return {} if row is None else {"weight": self.parts()[0]["weight"] + row}


def test_rows_share_what_is_not_drawn():
    tensors = Shifted(Network(nn.Linear(2, 3), torch.zeros(1, 2)), ["weight"])
    first, second, trained = tensors.of([1, 2, None])
    assert first["bias"] is second["bias"]
    assert_close(second["weight"] - first["weight"], torch.ones(3, 2))
    assert trained["weight"] is tensors.parts()[0]["weight"]
    assert tensors.keys(5) == {"weight": 5}
    assert tensors.keys(None) == {}


def test_resolved_tensors_are_those_of_the_rows():
    tensors = Shifted(Network(nn.Linear(2, 3), torch.zeros(1, 2)), ["weight"])
    fixed = tensors.resolved([4, 7])
    for one, other in zip(fixed.of([0, 1]), tensors.of([4, 7]), strict=True):
        assert_close(one, other)
    assert not any(parameter.requires_grad for parameter in fixed.parameters())


def test_normal_numbers_follow_from_the_seed_and_the_place():
    like = torch.zeros(1, dtype=torch.float64)
    one = normal_numbers([1000], 3, 0, like)
    assert one.dtype == torch.float64
    assert torch.equal(one, normal_numbers([1000], 3, 0, like))
    for other in (normal_numbers([1000], 4, 0, like), normal_numbers([1000], 3, 1, like)):
        assert abs((one * other).mean()) < 0.15
    assert not torch.equal(normal_numbers([5], None, 0, like), normal_numbers([5], None, 0, like))
