"""Rewriting: programs with other steps, while the first one stays as it is."""

import torch
from torch import nn
from torch.testing import assert_close

from pluribus.mechanisms.graph.program import read_program
from pluribus.mechanisms.graph.rewriting import Rewriting
from pluribus.mechanisms.network.inputs import Inputs
from pluribus.mechanisms.network.network import Network
from pluribus.mechanisms.running.plan import ExecutionPlan

aten = torch.ops.aten


def test_a_step_is_replaced_and_the_program_stays_as_it_is():
    x = torch.randn(2, 3)
    network = Network(nn.Sequential(nn.Linear(3, 3), nn.ReLU()), x)
    program = read_program(network)
    before = str(program.graph_module.graph)
    linear, relu = program.steps
    rewriting = Rewriting(program)
    scale = rewriting.entry("scale", x)
    assert rewriting.entry("scale", x) is scale
    shift = rewriting.entry("shift", x, parameter=False)
    with rewriting.graph.inserting_before(rewriting.copies[relu]):
        scaled = rewriting.graph.call_function(aten.mul.Tensor, (rewriting.copies[linear], scale))
        shifted = rewriting.graph.call_function(aten.add.Tensor, (scaled, shift))
    rewriting.replace(relu, shifted)
    changed = rewriting.finish()
    assert str(program.graph_module.graph) == before
    assert {changed.held[node] for node in changed.parameters} == {"0.weight", "0.bias", "scale"}
    tensors = {**network.tensors(), "scale": torch.tensor([2.0, 3.0, 4.0]), "shift": torch.ones(3)}
    found = ExecutionPlan(changed, [{}]).run(lambda rows: iter([tensors]), Inputs((x,), {}), 1)[0]
    assert_close(found, network.module[0](x) * tensors["scale"] + 1)


def test_tensors_that_nothing_reads_are_left_out():
    network = Network(nn.Sequential(nn.Linear(3, 3), nn.ReLU()), torch.randn(2, 3))
    program = read_program(network)
    rewriting = Rewriting(program)
    rewriting.entry("unread", None)
    rewriting.replace(program.steps[0], rewriting.copies[program.entries[0]])
    assert rewriting.finish().held == {}
