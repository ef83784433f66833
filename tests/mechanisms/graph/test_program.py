"""The steps of a network: they compute what it computes, write nowhere, and know what depends on what."""

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations
from torch.testing import assert_close

from pluribus.errors import InputError
from pluribus.mechanisms.graph.program import read_program
from pluribus.mechanisms.network.dry_run import dry_run
from pluribus.mechanisms.network.network import Network
from pluribus.mechanisms.network.outputs import select_output
from tests.cases import CASES, each
from tests.zoo import CountedBatch

EXPORTED = [case for case in CASES if case.exports]


def run(program, network, inputs):
    tensors = network.tensors()
    values = {node: tensors[name] for node, name in program.held.items()} | dict(program.constants)
    values |= dict(zip(program.entries, program.signature.flatten(inputs), strict=True))
    for node in program.steps:
        values[node] = program.step(node, values)
    return program.signature.predict([values.get(one, one) for one in program.results])


@each(EXPORTED)
@pytest.mark.sampled(3)
def test_steps_compute_the_network_on_another_batch(case):
    network = Network(case.model(), case.inputs())
    program = read_program(network)
    inputs = network.example
    if "counted" not in case.name:
        inputs = inputs.map(lambda tensor: torch.cat([tensor, tensor[:3]]))
    before = inputs.copy()
    with dry_run(network.module, training=False), torch.no_grad():
        copied = inputs.copy()
        expected = select_output(network.module(*copied.args, **copied.keywords))
        assert_close(run(program, network, inputs), expected)
    assert_close(list(inputs.tensors()), list(before.tensors()))


def test_in_place_operators_write_nowhere():
    network = Network(nn.Sequential(nn.Linear(3, 4), nn.ReLU(inplace=True), nn.Linear(4, 2)))
    program = read_program(network)
    assert [str(node.target) for node in program.steps] == [
        "aten.linear.default",
        "aten.relu.default",
        "aten.linear.default",
    ]


def test_what_depends_on_a_tensor_lies_after_it():
    network = Network(nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)))
    program = read_program(network)
    reached = program.depends_on(["2.weight"])
    assert [node in reached for node in program.steps] == [False, False, True]


def test_inputs_of_another_kind_are_refused():
    network = Network(nn.Sequential(nn.Conv2d(1, 2, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten()))
    flatten = read_program(network).signature.flatten
    assert len(flatten(network.example)) == 1
    with pytest.raises(InputError, match=r"float32\[2, 1, 32, 32\]\), got \(float32\[2, 1, 40, 40\]\)"):
        flatten(network.example.map(lambda tensor: torch.zeros(2, 1, 40, 40)))
    with pytest.raises(InputError, match="float64"):
        flatten(network.example.map(torch.Tensor.double))


def test_a_batch_that_the_code_counts_is_fixed():
    network = Network(CountedBatch(), torch.zeros(10, 6))
    signature = read_program(network).signature
    assert signature.why_not(network.example) == ""
    assert "float32[4, 6]" in signature.why_not(network.example.take(slice(4)))


def test_layers_are_where_parameters_meet_the_inputs():
    layer = parametrizations.weight_norm(nn.Linear(3, 4))
    program = read_program(Network(nn.Sequential(layer, nn.Dropout(0.5), nn.Linear(4, 2))))
    assert [str(node.target) for node in program.calls] == ["aten.linear.default"] * 2
    assert not any(program.is_random(node) for node in program.steps)


def test_random_operators_are_told_from_dropout_that_is_off():
    program = read_program(Network(nn.Sequential(nn.Linear(3, 4), AlwaysDropped(), nn.Linear(4, 2))))
    dropouts = [node for node in program.steps if str(node.target) == "aten.dropout.default"]
    assert [program.is_random(node) for node in dropouts] == [bool(node.args[2]) for node in dropouts]
    assert any(map(program.is_random, dropouts))


class AlwaysDropped(nn.Module):
    def forward(self, x):
        return nn.functional.dropout(nn.functional.dropout(x, training=False), training=True)
