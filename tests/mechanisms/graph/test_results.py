"""Results: what a graph returns of what a network returns."""

import torch
from torch import nn
from torch.testing import assert_close

from pluribus.mechanisms.graph.export import read_graph
from pluribus.mechanisms.graph.results import without_objects
from pluribus.mechanisms.network.inputs import Inputs


class Returning(nn.Module):
    """Return logits beside something else, as language models return a cache."""

    def __init__(self, other):
        super().__init__()
        self.layer, self.other = nn.Linear(4, 3), other

    def forward(self, x):
        return {"cache": self.other, "logits": self.layer(x), "scale": 2.0}


def test_objects_beside_the_prediction_are_no_part_of_the_graph():
    x, network = torch.randn(4, 4), Returning(object())
    program = read_graph(network, Inputs.of(x), training=False).program
    returned = program.module()((x,), {})
    assert (returned["cache"], returned["scale"]) == (None, 2.0)
    assert_close(returned["logits"], network(x)["logits"])


def test_an_object_without_tensors_stays():
    other = object()
    assert without_objects(other) is other
