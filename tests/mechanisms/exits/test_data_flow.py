"""Data flow: what follows from the input layers, its edges, and the parameters before a value."""

import torch
from torch import nn

from pluribus.mechanisms.exits.data_flow import START, read_data_flow
from pluribus.mechanisms.graph.operation import layer_of
from pluribus.mechanisms.graph.operators import operator_name
from pluribus.mechanisms.network.network import Network
from tests import zoo


def flow_of(model, *shape):
    return read_data_flow(Network(model, torch.zeros(2, *shape)))


def test_flow_begins_with_the_first_layer_that_is_no_norm():
    flow = flow_of(nn.Sequential(nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 3)), 6)
    assert [operator_name(node) for node in flow.positions] == ["linear"]
    assert [operator_name(node) for node in flow.sources] == ["linear"]
    assert flow.predicted == (2, 3)


def test_edges_lead_from_the_inputs_to_the_prediction():
    flow = flow_of(zoo.mlp(), 6)
    assert flow.edges[0].start == START
    assert flow.edges[-1].end == len(flow.program.steps)


def test_edge_jumps_over_what_lies_between_its_ends():
    class Skip(zoo.ThreeLayers):
        def forward(self, x):
            x = self.first(x)
            return self.head(x + self.middle(x))

    flow = flow_of(Skip(), 6)
    first, middle = list(flow.positions.values())[:2]
    assert any(edge.jumps_over(middle) for edge in flow.edges)
    assert not any(edge.jumps_over(first) for edge in flow.edges)


def test_parameters_of_a_value_are_those_before_it():
    flow = flow_of(zoo.mlp(), 6)
    first = next(iter(flow.positions))
    assert flow.parameters_of(first) == {"0.weight", "0.bias"}


def test_values_that_the_prediction_does_not_need_are_no_flow():
    class Unused(zoo.ThreeLayers):
        def forward(self, x):
            x = self.first(x)
            return self.head(x) + torch.zeros_like(self.middle(x))[:, :3]

    flow = flow_of(Unused(), 6)
    layers = {layer_of(node) for node in flow.positions}
    assert "head" in layers
    assert "middle" not in layers


def test_free_axes_are_seen_in_the_inputs():
    assert flow_of(zoo.mlp(), 6).has_free_axes
