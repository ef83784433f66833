"""An operation knows its arguments by name, its layer, and the line of the user's code."""

import os

import torch
from torch import nn

from pluribus.mechanisms.graph import operation
from pluribus.mechanisms.graph.export import read_graph
from pluribus.mechanisms.network.inputs import Inputs


class Twice(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(self.layer(x)).add(1)


def test_operations_know_their_arguments_and_where_they_come_from() -> None:
    graph = read_graph(Twice(), Inputs.of(torch.zeros(2, 3)), training=False)
    first, second, added = graph.operations()
    assert (first.operator, first.layer, second.layer, added.layer) == ("linear", "layer", "layer", "")
    assert first.argument("bias") is second.argument("bias")
    assert added.argument("alpha") == 1
    assert added.argument("unknown", "nothing") == "nothing"
    assert added.source.startswith(__file__)
    assert graph.used() == {"layer.weight", "layer.bias"}


def test_libraries_whose_names_begin_with_torch_are_not_torch():
    packages = os.path.dirname(os.path.dirname(torch.__file__))
    node = torch.fx.Graph().placeholder("x")
    node.meta["stack_trace"] = "\n".join(
        f'File "{file}", line {line}, in forward'
        for line, file in enumerate(("/me/train.py", f"{packages}/torchvision/resnet.py", torch.__file__))
    )
    assert operation._source(node) == f"{packages}/torchvision/resnet.py:1"
