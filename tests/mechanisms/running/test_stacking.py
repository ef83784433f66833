"""Stacking: several versions by one operator are what each would be alone."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.fx import Graph
from torch.testing import assert_close

from pluribus.mechanisms.graph.program import read_program
from pluribus.mechanisms.network.network import Network
from pluribus.mechanisms.running.executor import EAGER, Piece, Task
from pluribus.mechanisms.running.stacking import _picked, compute
from tests import zoo
from tests.cases import seeded

LAYERS = {
    "relu": nn.ReLU(),
    "linear": nn.Linear(4, 3),
    "norm": nn.LayerNorm(4),
    "flatten": nn.Flatten(),
    "softmax": nn.Softmax(-1),
    "swapped": zoo.Apply(lambda x: x.transpose(1, -1)),
    "split": zoo.Apply(lambda x: x.unflatten(2, (2, 2))),
    "picked": zoo.Apply(lambda x: x.select(1, 1)),
}


def versions(shape, count=3):
    return [torch.randn(shape, dtype=torch.float64, generator=seeded(seed)) for seed in range(count)]


@pytest.mark.parametrize("stacked", [False, True])
@pytest.mark.parametrize("name", LAYERS)
def test_versions_together_are_versions_alone(name, stacked):
    network = Network(nn.Sequential(LAYERS[name]).double(), torch.zeros(5, 2, 4, dtype=torch.float64))
    program = read_program(network)
    node = program.steps[-1]
    inputs, held = versions((5, 2, 4)), network.tensors()
    (entry,) = program.entries
    stack = torch.stack(inputs)
    pieces = [Piece(stack, place) if stacked else Piece(one) for place, one in enumerate(inputs)]
    values = {entry: dict(enumerate(pieces))} | {n: {0: Piece(held[to])} for n, to in program.held.items()}
    reads = {one: [2, 0, 1] if one is entry else [0, 0, 0] for one in node.all_input_nodes}
    came = compute(program, node, 3, reads, values)
    with torch.no_grad():
        for piece, version in zip(came, [2, 0, 1], strict=True):
            assert_close(piece.value, network.module(inputs[version]))


@pytest.mark.parametrize("masked", [False, True])
def test_attention_of_all_versions_is_one_call_unless_it_has_a_mask(masked):
    def attend(query):
        mask = torch.ones(5, 1, 4, 4, dtype=torch.bool).tril() if masked else None
        return F.scaled_dot_product_attention(query, query * 2, query + 1, attn_mask=mask)

    shape = (5, 2, 4, 3)
    program = read_program(Network(zoo.Apply(attend), torch.zeros(shape, dtype=torch.float64)))
    (entry,), node = program.entries, program.steps[-1]
    reads = {one: [0, 1] if one in node.args[:3] else [0, 0] for one in node.all_input_nodes}
    inputs = versions(shape, count=2)
    values = {part: {} for part in reads}
    for version, query in enumerate(inputs):
        alone = {entry: query}
        for step in program.steps[:-1]:
            alone[step] = program.step(step, alone)
        for part, held in values.items():
            held[version] = Piece(alone[part])
    came = compute(program, node, 2, reads, values)
    assert (came[0].whole is came[1].whole) != masked
    for piece, query in zip(came, inputs, strict=True):
        assert_close(piece.value, attend(query))


def test_positions_of_all_versions_are_picked_at_once():
    graph = Graph()
    x, index = graph.placeholder("x"), graph.placeholder("index")
    node = graph.call_function(torch.ops.aten.index_select.default, (x, 1, index))
    value, picks = torch.randn(4, 6), [torch.tensor([0, 5]), torch.tensor([3, 1]), torch.tensor([2, 2])]
    pieces = {x: [Piece(value)] * 3, index: [Piece(pick) for pick in picks]}
    for place, piece in enumerate(_picked(Task(node, pieces, [index], EAGER))):
        assert_close(piece.value, value[:, picks[place]])
