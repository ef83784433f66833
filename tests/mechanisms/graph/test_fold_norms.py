"""Fold norms: rows keep their numbers, and as few weights as they had."""

import torch
from torch import nn
from torch.testing import assert_close

from pluribus.mechanisms.graph.fold_norms import fold_norms
from pluribus.mechanisms.graph.foldable import find_folds
from pluribus.mechanisms.graph.program import read_program
from pluribus.mechanisms.network.inputs import Inputs
from pluribus.mechanisms.network.network import Network
from pluribus.mechanisms.running.plan import ExecutionPlan
from tests.cases import seeded


def network():
    layers = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.ReLU(), nn.Linear(3, 2)).double().eval()
    return Network(layers, torch.randn(5, 4, dtype=torch.float64, generator=seeded(0)))


def folded(own):
    """A network of which two rows have some tensors for themselves; with the expected outputs."""
    one = network()
    tensors, program = one.tensors(), read_program(one)

    def of(rows):
        for row in rows:
            yield {name: value + row * (name in own) for name, value in tensors.items()}

    def keys(row):
        return dict.fromkeys(own, row)

    found = fold_norms(program, of, keys, [0, 1])
    x = one.example
    expected = ExecutionPlan(program, [keys(row) for row in (0, 1)]).run(of, x, 2)
    plan = ExecutionPlan(found.program, [found.keys(row) for row in (0, 1)])
    assert_close(plan.run(found.of, Inputs(x.args, {}), 2), expected)
    return found, plan


def test_rows_with_layers_of_their_own_get_folded_ones_of_their_own():
    found, _ = folded(["0.weight", "1.running_mean"])
    assert found.notes == ("1 is part of 0",)
    assert "aten.batch_norm.default" not in [str(node.target) for node in found.program.steps]


def test_a_shared_layer_with_a_shared_norm_stays_shared():
    found, plan = folded(["3.weight"])
    assert found.notes == ("1 is part of 0",)
    assert [plan.count(node) for node in found.program.steps] == [1, 1, 2]


def test_a_shared_layer_stays_apart_from_norms_of_members():
    found, _ = folded(["1.running_mean"])
    assert found.notes == ("1 is not part of 0: members share the layer and not the norm",)


def test_folding_leaves_the_program_as_it_was():
    program = read_program(network())
    before = str(program.graph_module.graph)
    fold_norms(program, lambda rows: iter(()), lambda row: {}, [0])
    assert str(program.graph_module.graph) == before
    assert len(find_folds(program)) == 1
