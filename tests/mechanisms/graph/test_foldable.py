"""Foldable norms: those that alone read what a layer computes."""

import pytest
import torch
from torch import nn

from pluribus.mechanisms.graph.foldable import find_folds, why_apart
from pluribus.mechanisms.graph.program import read_program
from pluribus.mechanisms.network.network import Network


class Both(nn.Module):
    """A layer, a norm, and another reader of the layer's value or weight."""

    def __init__(self, reads: str) -> None:
        super().__init__()
        self.layer, self.norm, self.reads = nn.Linear(4, 4), nn.BatchNorm1d(4), reads

    def forward(self, x):
        y = self.layer(x)
        other = {"value": y, "weight": self.layer.weight.sum(), "nothing": 0}[self.reads]
        return self.norm(y) + other


@pytest.mark.parametrize(("reads", "count"), [("nothing", 1), ("value", 0), ("weight", 0)])
def test_another_reader_keeps_a_norm_apart(reads, count):
    program = read_program(Network(Both(reads).eval(), torch.randn(3, 4)))
    assert len(find_folds(program)) == count


def test_a_norm_of_another_precision_stays_apart():
    program = read_program(Network(Both("nothing").eval(), torch.randn(3, 4)))
    (fold,) = find_folds(program)
    assert why_apart(program, fold, [{}]) == ""
    (mean,) = [node for node, name in program.held.items() if name == "norm.running_mean"]
    mean.meta["val"] = mean.meta["val"].double()
    assert why_apart(program, fold, [{}]) == "they have different precisions"
