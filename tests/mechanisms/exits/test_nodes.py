"""Nodes: operators, norms, modules, shapes and ranks of exported nodes."""

import torch
from torch import nn

from pluribus.mechanisms.exits.nodes import is_norm_call, layer_label, rank_of, shape_of, stack_of
from pluribus.mechanisms.graph.operators import operator_name
from pluribus.mechanisms.graph.program import read_program
from pluribus.mechanisms.network.network import Network


class PlainRMSNorm(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(6))

    def forward(self, x):
        return x * self.scale


class Outer(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(6, 6), nn.LayerNorm(6), PlainRMSNorm())

    def forward(self, x):
        return self.inner(self.inner(x)) + 1


def steps():
    return read_program(Network(Outer(), torch.zeros(2, 6))).steps


def test_operator_has_no_library_and_no_overload():
    assert [operator_name(node) for node in steps()][:3] == ["linear", "layer_norm", "mul"]


def test_norms_are_known_by_operator_or_by_class():
    assert [is_norm_call(node) for node in steps()] == [False, True, True] * 2 + [False]


def test_modules_of_a_node_are_listed_without_the_number_of_the_call():
    found = [stack_of(node) for node in steps()]
    assert found[0] == found[3] == ["inner", "inner.0"]
    assert found[-1] == []


def test_label_names_the_layer_or_the_operator():
    assert layer_label(steps()[0]) == "inner.0"
    assert layer_label(steps()[-1]) == "add in the network itself"


def test_shape_and_rank_are_those_of_the_example():
    first = steps()[0]
    assert shape_of(first.meta["val"]) == (2, 6)
    assert rank_of(first) == 2


def test_several_values_have_no_rank():
    network = Network(nn.LSTM(6, 3, batch_first=True), torch.zeros(2, 5, 6), output=lambda made: made[0])
    several = [node for node in read_program(network).steps if operator_name(node) == "lstm"]
    assert [rank_of(node) for node in several] == [0]
